/* Any bytes as a JSON body. Whatever is read prints, and reads again to the same message. The first byte picks the
 * message. */
#include <stdlib.h>
#include <string.h>

#include "core/protojson.h"
#include "records/plimsoll.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const ProtobufCMessageDescriptor *const MESSAGES[] = {
    &plimsoll__v1__run_request__descriptor,          &plimsoll__v1__run_response__descriptor,
    &plimsoll__v1__session_run_request__descriptor,  &plimsoll__v1__session_run_response__descriptor,
    &plimsoll__v1__open_session_request__descriptor, &plimsoll__v1__describe_response__descriptor,
    &plimsoll__v1__run_record__descriptor,           &plimsoll__v1__close_session_response__descriptor,
};
enum { MESSAGE_COUNT = sizeof(MESSAGES) / sizeof(MESSAGES[0]) };

static uint8_t *pack(const ProtobufCMessage *m, size_t *len)
{
    *len = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = malloc(*len + 1);
    protobuf_c_message_pack(m, bytes);
    return bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char error[PROTOJSON_ERROR_MAX] = "";
    if (size == 0)
        return 0;
    const ProtobufCMessageDescriptor *of = MESSAGES[data[0] % MESSAGE_COUNT];
    ProtobufCMessage *m = protojson_parse(of, data + 1, size - 1, error);
    if (m == NULL) {
        if (error[0] == '\0' || memchr(error, '\0', sizeof(error)) == NULL)
            abort();
        return 0;
    }
    buffer_t json;
    buffer_init(&json, (size_t)1 << 30);
    if (!protojson_print(m, &json))
        abort();
    ProtobufCMessage *again = protojson_parse(of, json.base, json.len, error);
    if (again == NULL)
        abort();
    size_t len, again_len;
    uint8_t *bytes = pack(m, &len), *again_bytes = pack(again, &again_len);
    if (len != again_len || memcmp(bytes, again_bytes, len) != 0)
        abort();
    free(bytes);
    free(again_bytes);
    buffer_dispose(&json);
    protobuf_c_message_free_unpacked(m, NULL);
    protobuf_c_message_free_unpacked(again, NULL);
    return 0;
}
