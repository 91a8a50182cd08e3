#include "gateway/connect.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/protojson.h"

enum { GZIP = 16, WINDOW_BITS = 15, INFLATE_STEP = 64 * 1024 };

const char *connect_media_type(codec_t codec)
{
    return codec == CODEC_JSON ? "application/json" : "application/proto";
}

/* Inflates into `out`; false with *refusal. Several members are one stream, as gzip readers have it. */
static bool inflate_body(lane_t *lane, intake_t *in, const char *body, size_t len, buffer_t *out, refusal_t *refusal)
{
    z_stream z = {.next_in = (Bytef *)body, .avail_in = (uInt)len};
    bool fine = false;
    if (inflateInit2(&z, GZIP + WINDOW_BITS) != Z_OK) {
        refusal_set_http(refusal, 0, CODE_INTERNAL, "the body could not be decompressed");
        return false;
    }
    for (;;) {
        size_t room = out->limit - out->len < INFLATE_STEP ? out->limit - out->len : INFLATE_STEP;
        if (room == 0) {
            refusal_set_http(refusal, 0, CODE_RESOURCE_EXHAUSTED, "the decompressed message is larger than %d bytes", BODY_MAX);
            break;
        }
        if (out->len + room > in->reserved && !intake_reserve(lane, in, INFLATE_STEP)) {
            refusal_set_early(refusal, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
                              "the gateway holds as many request bytes as PLIMSOLL_BUFFER_MB allows; try again in a moment");
            refusal->retry_after_ms = 1000;
            break;
        }
        z.next_out = buffer_reserve(out, room);
        z.avail_out = (uInt)room;
        int result = inflate(&z, Z_NO_FLUSH);
        buffer_commit(out, room - z.avail_out);
        if (result == Z_STREAM_END && z.avail_in == 0) {
            fine = true;
            break;
        }
        if (result == Z_STREAM_END) {
            if (inflateReset(&z) == Z_OK)
                continue;
        }
        if (result != Z_OK) {
            refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "the gzip body is malformed or cut short");
            break;
        }
    }
    inflateEnd(&z);
    return fine;
}

static void *bounded_alloc(void *data, size_t size)
{
    size_t *left = data;
    if (size > *left)
        return NULL;
    *left -= size;
    return malloc(size);
}

static void bounded_free(void *data, void *p)
{
    (void)data;
    free(p);
}

typedef struct {
    const uint8_t *at, *end;
} wire_t;

static bool read_varint(wire_t *w, uint64_t *out)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (w->at == w->end)
            return false;
        uint8_t byte = *w->at++;
        if (shift < 64)
            v |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            *out = v;
            return true;
        }
    }
    return false;
}

static bool skip_bytes(wire_t *w, uint64_t n)
{
    if (n > (uint64_t)(w->end - w->at))
        return false;
    w->at += n;
    return true;
}

static const char *judge_message(const ProtobufCMessageDescriptor *d, wire_t w, unsigned depth);

static const char *judge_bytes(const ProtobufCFieldDescriptor *f, const uint8_t *bytes, size_t len, unsigned depth)
{
    if (f == NULL || (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE))
        return NULL;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return judge_message(f->descriptor, (wire_t){bytes, bytes + len}, depth + 1);
    /* protobuf-c keeps strings as C strings: what stands behind a NUL would be lost without a word */
    if (memchr(bytes, 0, len) != NULL)
        return "has a string with a NUL byte";
    return utf8_is_valid(bytes, len) ? NULL : "has a string that is not valid UTF-8";
}

static const char *judge_message(const ProtobufCMessageDescriptor *d, wire_t w, unsigned depth)
{
    static const char malformed[] = "is malformed";
    uint64_t tag, n;
    if (depth > PROTOJSON_DEPTH_MAX)
        return "is nested too deep";
    while (w.at < w.end) {
        const char *why;
        if (!read_varint(&w, &tag))
            return malformed;
        switch (tag & 7) {
        case 0:
            if (!read_varint(&w, &n))
                return malformed;
            break;
        case 1:
        case 5:
            if (!skip_bytes(&w, (tag & 7) == 1 ? 8 : 4))
                return malformed;
            break;
        case 2: {
            if (!read_varint(&w, &n) || n > (uint64_t)(w.end - w.at))
                return malformed;
            const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
            if ((why = judge_bytes(f, w.at, (size_t)n, depth)) != NULL)
                return why;
            w.at += n;
            break;
        }
        default:
            return malformed;
        }
    }
    return NULL;
}

const char *connect_wire_check(const ProtobufCMessageDescriptor *descriptor, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    return len == 0 ? NULL : judge_message(descriptor, (wire_t){at, at + len}, 0);
}

static ProtobufCMessage *decode_proto(const ProtobufCMessageDescriptor *d, const char *body, size_t len, refusal_t *refusal)
{
    size_t left = DECODED_MEMORY_MAX;
    const char *why = connect_wire_check(d, body, len);
    if (why != NULL) {
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "the body is not a %s message: it %s", d->name, why);
        return NULL;
    }
    ProtobufCAllocator bounded = {bounded_alloc, bounded_free, &left};
    ProtobufCMessage *m = protobuf_c_message_unpack(d, &bounded, len, (const uint8_t *)body);
    if (m == NULL)
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "the body is not a %s message", d->name);
    return m;
}

static ProtobufCMessage *decode_json(const ProtobufCMessageDescriptor *d, const char *body, size_t len, refusal_t *refusal)
{
    char error[PROTOJSON_ERROR_MAX];
    ProtobufCMessage *m = protojson_parse(d, body, len, error);
    if (m == NULL)
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "the body is not a %s in JSON: %s", d->name, error);
    return m;
}

ProtobufCMessage *connect_decode(lane_t *lane, intake_t *in, const ProtobufCMessageDescriptor *descriptor, const char *body,
                                 size_t len, refusal_t *refusal)
{
    buffer_t inflated;
    ProtobufCMessage *m = NULL;
    buffer_init(&inflated, BODY_MAX);
    /* an empty body is not compressed, whatever the header says */
    if (in->gzip && len != 0) {
        if (!inflate_body(lane, in, body, len, &inflated, refusal))
            goto Exit;
        body = (const char *)inflated.base;
        len = inflated.len;
    }
    m = in->codec == CODEC_PROTO ? decode_proto(descriptor, body, len, refusal) : decode_json(descriptor, body, len, refusal);
Exit:
    buffer_dispose(&inflated);
    return m;
}

bool connect_encode(codec_t codec, const ProtobufCMessage *message, buffer_t *out)
{
    if (codec == CODEC_JSON)
        return protojson_print(message, out);
    size_t len = protobuf_c_message_get_packed_size(message);
    uint8_t *at = buffer_reserve(out, len);
    if (at == NULL)
        return false;
    protobuf_c_message_pack(message, at);
    buffer_commit(out, len);
    return true;
}
