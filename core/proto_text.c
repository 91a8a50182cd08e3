#include "core/proto_text.h"

#include <string.h>

static const struct {
    const char *message, *field;
} TEXTS[] = {
    {"plimsoll.v1.ProjectFile", "content"},
};

bool proto_is_text(const ProtobufCMessageDescriptor *descriptor, const ProtobufCFieldDescriptor *field)
{
    if (field->type != PROTOBUF_C_TYPE_BYTES || field->label == PROTOBUF_C_LABEL_REPEATED)
        return false;
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        if (strcmp(field->name, TEXTS[i].field) == 0 && strcmp(descriptor->name, TEXTS[i].message) == 0)
            return true;
    }
    return false;
}
