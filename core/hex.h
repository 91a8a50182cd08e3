/* The value of one hexadecimal digit (RFC 4648 section 8), or -1 when the character is none. */
#ifndef CORE_HEX_H
#define CORE_HEX_H

int hex_digit(char c);
/* Of a form that has one way to write each byte: lower case alone. */
int hex_digit_lower(char c);

#endif
