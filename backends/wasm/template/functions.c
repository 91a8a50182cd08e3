#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "backends/wasm/template/engine.h"
#include "backends/wasm/template/module.h"
#include "backends/wasm/wire.h"

const char FUNCTION_PRINT[] = "log", FUNCTION_HOST_CALL[] = "host_call";

static handle_t new_undefined(void)
{
    return Z_quickjsZ_qjs_dup_value(&module, Z_quickjsZ_qjs_get_undefined(&module));
}

bool append_string_of(output_stream_t stream, handle_t value)
{
    guest_t text = Z_quickjsZ_qjs_get_string_len(&module, value, scratch);
    if (text == 0)
        return false;
    uint32_t len = wire_get32(guest_bytes(scratch, 4));
    output_append(stream, guest_bytes(text, len), len);
    Z_quickjsZ_qjs_free_cstring(&module, text);
    return true;
}

/* An object whose own toString fails is shown by its class, as the engine's command line does. */
static bool append_class_of(output_stream_t stream, handle_t value)
{
    uint64_t raw, text_value;
    guest_t context = Z_quickjsZ_qjs_get_context_ptr(&module);
    memcpy(&raw, guest_bytes(value, sizeof(raw)), sizeof(raw));
    text_value = Z_quickjsZ_JS_ToObjectString(&module, context, raw);
    guest_t text = Z_quickjsZ_JS_ToCStringLen2(&module, context, scratch, text_value, 0);
    if (text == 0)
        return false;
    uint32_t len = wire_get32(guest_bytes(scratch, 4));
    output_append(stream, guest_bytes(text, len), len);
    Z_quickjsZ_JS_FreeCString(&module, context, text);
    Z_quickjsZ_JS_FreeValue(&module, context, text_value);
    return true;
}

void drop_exception(void)
{
    Z_quickjsZ_qjs_free_value(&module, Z_quickjsZ_qjs_get_exception(&module));
}

/* console.*: the arguments' string forms with a space between them, and a newline, on stdout. */
static handle_t call_print(uint32_t argc, const uint8_t *argv)
{
    for (uint32_t i = 0; i < argc; ++i) {
        handle_t value = wire_get32(argv + (size_t)i * 4);
        if (i > 0)
            output_append(OUTPUT_STDOUT, " ", 1);
        if (output_is_full(OUTPUT_STDOUT) && Z_quickjsZ_qjs_is_string(&module, value))
            continue; /* a flood of output costs no conversion */
        if (append_string_of(OUTPUT_STDOUT, value))
            continue;
        if (is_interrupted || !Z_quickjsZ_qjs_is_object(&module, value))
            return 0;
        drop_exception();
        if (!append_class_of(OUTPUT_STDOUT, value))
            return 0;
    }
    output_append(OUTPUT_STDOUT, "\n", 1);
    output_tick(engine_clock_ns());
    return new_undefined();
}

handle_t new_string(const void *text, size_t len)
{
    guest_t at = guest_strndup(text, len);
    if (at == 0)
        return 0;
    handle_t value = Z_quickjsZ_qjs_new_string(&module, at, (uint32_t)len);
    Z_quickjsZ_wasm_free(&module, at);
    return value;
}

/* One exchange with the role. The answer is three digits of status and the body; the number 0 says the request was too
 * large. */
static handle_t call_host(uint32_t argc, const uint8_t *argv)
{
    handle_t value = argc > 0 ? wire_get32(argv) : 0;
    guest_t text = value != 0 ? Z_quickjsZ_qjs_get_string_len(&module, value, scratch) : 0;
    if (text == 0)
        return 0;
    uint32_t len = wire_get32(guest_bytes(scratch, 4));
    if (len == 0 || len > WASM_CALL_MAX) {
        Z_quickjsZ_qjs_free_cstring(&module, text);
        return len == 0 ? new_string("413", 3) : Z_quickjsZ_qjs_new_number(&module, 0);
    }
    output_frame(WASM_FRAME_CALL, guest_bytes(text, len), len);
    Z_quickjsZ_qjs_free_cstring(&module, text);

    uint8_t head[WASM_FRAME_HEADER + 8];
    input_read(head, sizeof(head));
    uint32_t frame_len = wire_get32(head + 1), status = wire_get32(head + 5), body_len = wire_get32(head + 9);
    if (head[0] != WASM_FRAME_REPLY || body_len > WASM_REPLY_BODY_MAX || frame_len != body_len + 8 || status < 100 ||
        status > 599)
        _exit(WASM_STATUS_BROKEN);
    guest_t answer = Z_quickjsZ_wasm_malloc(&module, 3 + body_len);
    if (answer == 0) {
        /* The answer must still be taken from the socket, or the next one would be misread. */
        uint8_t lost[4096];
        for (uint32_t left = body_len; left > 0;) {
            uint32_t n = left < sizeof(lost) ? left : (uint32_t)sizeof(lost);
            input_read(lost, n);
            left -= n;
        }
        return new_string("500", 3);
    }
    uint8_t *to = guest_bytes(answer, (uint64_t)body_len + 3);
    to[0] = (uint8_t)('0' + status / 100);
    to[1] = (uint8_t)('0' + status / 10 % 10);
    to[2] = (uint8_t)('0' + status % 10);
    input_read(to + 3, body_len);
    handle_t result = Z_quickjsZ_qjs_new_string(&module, answer, 3 + body_len);
    Z_quickjsZ_wasm_free(&module, answer);
    return result;
}

uint32_t Z_envZ_host_call(struct Z_env_instance_t *env, guest_t name, uint32_t name_len, handle_t this_value,
                          uint32_t argc, guest_t argv)
{
    (void)env, (void)this_value;
    const uint8_t *function = guest_bytes(name, name_len);
    /* The array stays where it is during the call; memory grows in place. */
    const uint8_t *arguments = guest_bytes(argv, (uint64_t)argc * 4);
    if (name_len == sizeof(FUNCTION_PRINT) - 1 && memcmp(function, FUNCTION_PRINT, name_len) == 0)
        return call_print(argc, arguments);
    if (name_len == sizeof(FUNCTION_HOST_CALL) - 1 && memcmp(function, FUNCTION_HOST_CALL, name_len) == 0)
        return call_host(argc, arguments);
    return new_undefined();
}
