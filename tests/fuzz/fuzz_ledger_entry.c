/* An entry of the ledger on arbitrary bytes: what is read is written again as the same bytes; and what a provider says,
 * scrubbed, is one printable line that fits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "records/ledger_entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static ledger_entry_t entry;
    char line[LEDGER_VALUE_MAX], scrubbed[LEDGER_ERROR_MAX + 1];
    char *copy = mem_alloc(size + 1); /* exactly as long: what reads past it is found */
    memcpy(copy, data, size);
    ledger_scrub(copy, scrubbed);
    expect(strlen(scrubbed) <= LEDGER_ERROR_MAX);
    for (const char *p = scrubbed; *p != '\0'; ++p)
        expect(*p >= ' ' && *p <= '~');
    if (ledger_entry_parse((const char *)data, size, &entry)) {
        /* numbers have one form, words have one form */
        expect(ledger_entry_format(&entry, line) == size && memcmp(line, data, size) == 0);
    }
    free(copy);
    return 0;
}
