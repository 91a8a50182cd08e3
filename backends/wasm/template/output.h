/*
 * A worker's way out: output frames, host calls, the end (wire.h). Plain write(2) on WORKER_FD, nothing of stdio.
 * Output waits in one buffer until it is full, old, or the run ends, so a small run is one write; past
 * WASM_STREAM_SEND_MAX a stream is dropped here already.
 */
#ifndef TEMPLATE_OUTPUT_H
#define TEMPLATE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { OUTPUT_STDOUT = 0, OUTPUT_STDERR = 1 } output_stream_t;

enum { OUTPUT_AGE_NS = 2 * 1000 * 1000 }; /* output older than this is sent by the next output_tick */

void output_append(output_stream_t stream, const void *bytes, size_t len);
/* Whether more bytes of the stream would be dropped. */
bool output_is_full(output_stream_t stream);
bool output_is_empty(output_stream_t stream); /* nothing was ever appended */
void output_flush(void);
/* To be called now and then with the monotonic time. */
void output_tick(uint64_t now_ns);
/* Sends what waits and the end frame, then ends the process. */
void output_end(int32_t exit_code) __attribute__((noreturn));
/* Sends what waits and one more frame. */
void output_frame(uint8_t type, const void *bytes, uint32_t len);
/* Reads exactly `len` bytes from the role; ends the process when there are none. */
void input_read(void *to, size_t len);
/* SIGALRM: past the deadline in code that never asked for the time. */
void output_on_alarm(int signal_number);

uint32_t wire_get32(const uint8_t *from);
void wire_put32(uint8_t *to, uint32_t value);

#endif
