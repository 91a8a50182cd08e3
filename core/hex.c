#include "core/hex.h"

int hex_digit_lower(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int hex_digit(char c)
{
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : hex_digit_lower(c);
}
