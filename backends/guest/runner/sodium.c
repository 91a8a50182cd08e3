/*
 * libsodium's answer to misuse, in place of its own: that one sits in the object that picks the best of every cipher it
 * has, and would bring all of them (some 250 KB) into a program that hashes.
 */
#include <sodium.h>
#include <stdlib.h>

void sodium_misuse(void)
{
    abort();
}
