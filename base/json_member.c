/* Looking into a document that was read. */
#include <string.h>

#include "base/json.h"

const struct json_value *json_member(const struct json_value *object, const char *name)
{
    if (object == NULL || object->kind != JSON_OBJECT) {
        return NULL;
    }
    for (size_t i = 0; i < object->count; i++) {
        if (strcmp(object->names[i], name) == 0) {
            return &object->items[i];
        }
    }
    return NULL;
}

double json_member_double(const struct json_value *object, const char *name, double fallback)
{
    const struct json_value *value = json_member(object, name);
    return value != NULL && value->kind == JSON_NUMBER ? value->number : fallback;
}

int64_t json_member_int(const struct json_value *object, const char *name, int64_t fallback)
{
    const struct json_value *value = json_member(object, name);
    return value != NULL && value->kind == JSON_NUMBER && value->is_integer ? value->integer
                                                                            : fallback;
}

const char *json_member_string(const struct json_value *object, const char *name,
                               const char *fallback)
{
    const struct json_value *value = json_member(object, name);
    return value != NULL && value->kind == JSON_STRING ? value->string : fallback;
}

bool json_member_bool(const struct json_value *object, const char *name, bool fallback)
{
    const struct json_value *value = json_member(object, name);
    return value != NULL && value->kind == JSON_BOOL ? value->boolean : fallback;
}
