#include "gateway/connect.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/protojson.h"
#include "core/protowire.h"

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
            refusal_set_http(refusal, 0, CODE_RESOURCE_EXHAUSTED, "the decompressed message is larger than %d bytes",
                             BODY_MAX);
            break;
        }
        if (out->len + room > in->reserved && !intake_reserve(lane, in, INFLATE_STEP)) {
            refusal_set_early(
                refusal, CODE_RESOURCE_EXHAUSTED, MARK_CAPACITY,
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

static ProtobufCMessage *decode_proto(const ProtobufCMessageDescriptor *d, const char *body, size_t len,
                                      refusal_t *refusal)
{
    char error[PROTOWIRE_ERROR_MAX];
    ProtobufCMessage *m = protowire_parse(d, body, len, error);
    if (m == NULL)
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "the body is not a %s: %s", d->name, error);
    return m;
}

static ProtobufCMessage *decode_json(const ProtobufCMessageDescriptor *d, const char *body, size_t len,
                                     refusal_t *refusal)
{
    char error[PROTOJSON_ERROR_MAX];
    ProtobufCMessage *m = protojson_parse(d, body, len, error);
    if (m == NULL)
        refusal_set_http(refusal, 0, CODE_INVALID_ARGUMENT, "the body is not a %s in JSON: %s", d->name, error);
    return m;
}

ProtobufCMessage *connect_decode(lane_t *lane, intake_t *in, const ProtobufCMessageDescriptor *descriptor,
                                 const char *body, size_t len, refusal_t *refusal)
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
    m = in->codec == CODEC_PROTO ? decode_proto(descriptor, body, len, refusal)
                                 : decode_json(descriptor, body, len, refusal);
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
