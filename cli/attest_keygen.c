/* `plimsoll attest keygen`: a key in two files, neither of which was there before. */
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/attest.h"
#include "cli/command.h"
#include "cli/input.h"

static const char HELP[] = "Usage: plimsoll attest keygen -out PREFIX [-json]\n"
                           "\n"
                           "Makes an Ed25519 key. PREFIX.key is the private half: it signs, only its owner may read "
                           "it, and whoever has it can\n"
                           "sign in your name. PREFIX.pub is the public half: give it to everybody who is to verify. "
                           "Neither file may exist yet.\n"
                           "Prints the key's ID, the SHA-256 of its public half.\n";

enum { PATH_BYTES = 4096 };

/* A file that this call has made; -1 with errno set. The mode holds whatever the umask is. */
static int make_file(const char *path, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd >= 0 && fchmod(fd, mode) != 0) {
        int why = errno;
        close(fd);
        unlink(path);
        errno = why;
        return -1;
    }
    return fd;
}

static bool fill_file(int fd, const char *text)
{
    bool ok = output_write(fd, text, strlen(text)) && fsync(fd) == 0;
    return close(fd) == 0 && ok;
}

static int write_key(const attest_options_t *options, const attest_key_t *key, const char *key_path,
                     const char *pub_path)
{
    char pub_pem[ATTEST_PUBLIC_PEM_MAX];
    int key_fd = make_file(key_path, 0600);
    if (key_fd < 0)
        return attest_fail(options, "%.200s cannot be made: %s", key_path, strerror(errno));
    int pub_fd = make_file(pub_path, 0644);
    if (pub_fd < 0) {
        int why = errno;
        close(key_fd);
        unlink(key_path);
        return attest_fail(options, "%.200s cannot be made: %s", pub_path, strerror(why));
    }
    char *key_pem = attest_key_pem(key);
    attest_public_pem(attest_key_public(key), pub_pem);
    bool ok = fill_file(key_fd, key_pem);
    ok = fill_file(pub_fd, pub_pem) && ok;
    int why = errno;
    sodium_free(key_pem);
    if (ok)
        return ATTEST_OK;
    unlink(key_path);
    unlink(pub_path);
    return attest_fail(options, "the key could not be written: %s", strerror(why));
}

int attest_keygen(int argc, char **argv)
{
    attest_options_t options;
    char key_path[PATH_BYTES], pub_path[PATH_BYTES];
    if (!attest_options_parse(argc, argv, ATTEST_TAKES_OUT, 0, 0, &options))
        return ATTEST_FAILED;
    if (options.help)
        return print_help(HELP);
    if (options.out == NULL)
        return attest_fail(&options, "-out PREFIX is needed: the key becomes PREFIX.key and PREFIX.pub");
    if (snprintf(key_path, sizeof(key_path), "%s.key", options.out) >= (int)sizeof(key_path))
        return attest_fail(&options, "the prefix is too long");
    snprintf(pub_path, sizeof(pub_path), "%s.pub", options.out);
    attest_key_t *key = attest_key_generate();
    int status = write_key(&options, key, key_path, pub_path);
    if (status == ATTEST_OK && options.json) {
        status = attest_print_json(&options, json_pack("{s:s, s:s, s:s}", "key_id", attest_key_public(key)->id, "key",
                                                       key_path, "pub", pub_path));
    } else if (status == ATTEST_OK) {
        attest_print_line("key id", attest_key_public(key)->id);
        attest_print_line("private", key_path);
        attest_print_line("public", pub_path);
        status = attest_end_output(&options);
    }
    attest_key_destroy(key);
    return status;
}
