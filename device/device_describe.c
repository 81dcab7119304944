#include <stdio.h>

#include "device/device_backend.h"

#define F32_BIT (1U << DTYPE_F32)
#define BF16_BIT (1U << DTYPE_BF16)
#define U8_BIT (1U << DTYPE_U8)
#define DATA_BITS (F32_BIT | BF16_BIT)

const char *device__dtype_name(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return "f32";
    case DTYPE_BF16:
        return "bf16";
    case DTYPE_U8:
        return "u8";
    }
    return "unknown";
}

const char *device__op_kind_name(enum op_kind kind)
{
    switch (kind) {
    case OP_INGEST:
        return "ingest";
    case OP_CONV:
        return "conv";
    case OP_CONV_BACKWARD_DATA:
        return "conv backward data";
    case OP_CONV_BACKWARD_FILTER:
        return "conv backward filter";
    case OP_BIAS_BACKWARD:
        return "bias backward";
    case OP_NORM:
        return "norm";
    case OP_NORM_INFER:
        return "norm infer";
    case OP_NORM_BACKWARD:
        return "norm backward";
    case OP_RELU_BACKWARD:
        return "relu backward";
    case OP_ADD:
        return "add";
    case OP_MAX_POOL:
        return "max pool";
    case OP_MAX_POOL_BACKWARD:
        return "max pool backward";
    case OP_GLOBAL_AVERAGE:
        return "global average";
    case OP_GLOBAL_AVERAGE_BACKWARD:
        return "global average backward";
    case OP_LINEAR:
        return "linear";
    case OP_LINEAR_BACKWARD_DATA:
        return "linear backward data";
    case OP_LINEAR_BACKWARD_WEIGHTS:
        return "linear backward weights";
    case OP_SOFTMAX_LOSS:
        return "softmax loss";
    case OP_CAST:
        return "cast";
    case OP_SGD:
        return "sgd";
    case OP_ADAMW:
        return "adamw";
    }
    return "unknown operation";
}

/* --- The tensors of each operation ----------------------------------------------------------- */

struct tensor_list {
    struct op_tensor *items;
    int count;
};

static void list_tensor(struct tensor_list *list, const char *name, const struct tensor *tensor,
                        unsigned access, bool required, unsigned dtypes)
{
    list->items[list->count++] = (struct op_tensor){
        .name = name, .tensor = tensor, .access = access, .required = required, .dtypes = dtypes};
}

#define NEEDS(member, access, dtypes) list_tensor(&list, #member, &u->member, access, true, dtypes)
#define MAY(member, access, dtypes) list_tensor(&list, #member, &u->member, access, false, dtypes)

int device__op_tensors(const struct op_desc *desc, struct op_tensor items[OP_TENSORS_MAX])
{
    struct tensor_list list = {.items = items};
    switch (desc->kind) {
    case OP_INGEST: {
        const struct op_ingest *u = &desc->u.ingest;
        NEEDS(from, OP_READS, F32_BIT | U8_BIT);
        NEEDS(to, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_CONV: {
        const struct op_conv *u = &desc->u.conv;
        NEEDS(x, OP_READS, DATA_BITS);
        NEEDS(w, OP_READS, DATA_BITS);
        MAY(bias, OP_READS, F32_BIT);
        NEEDS(y, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_CONV_BACKWARD_DATA: {
        const struct op_conv *u = &desc->u.conv;
        NEEDS(dy, OP_READS, DATA_BITS);
        NEEDS(w, OP_READS, DATA_BITS);
        NEEDS(dx, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_CONV_BACKWARD_FILTER: {
        const struct op_conv *u = &desc->u.conv;
        NEEDS(x, OP_READS, DATA_BITS);
        NEEDS(dy, OP_READS, DATA_BITS);
        NEEDS(dw, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_BIAS_BACKWARD: {
        const struct op_bias_backward *u = &desc->u.bias;
        NEEDS(dy, OP_READS, DATA_BITS);
        NEEDS(db, OP_WRITES, F32_BIT);
        break;
    }
    case OP_NORM: {
        const struct op_norm *u = &desc->u.norm;
        NEEDS(x, OP_READS, DATA_BITS);
        MAY(residual, OP_READS, DATA_BITS);
        NEEDS(scale, OP_READS, F32_BIT);
        NEEDS(bias, OP_READS, F32_BIT);
        NEEDS(scalars, OP_READS, F32_BIT);
        NEEDS(running_mean, OP_READS | OP_WRITES, F32_BIT);
        NEEDS(running_var, OP_READS | OP_WRITES, F32_BIT);
        NEEDS(y, OP_WRITES, DATA_BITS);
        NEEDS(saved_mean, OP_WRITES, F32_BIT);
        NEEDS(saved_inv_std, OP_WRITES, F32_BIT);
        break;
    }
    case OP_NORM_INFER: {
        const struct op_norm *u = &desc->u.norm;
        NEEDS(x, OP_READS, DATA_BITS);
        MAY(residual, OP_READS, DATA_BITS);
        NEEDS(scale, OP_READS, F32_BIT);
        NEEDS(bias, OP_READS, F32_BIT);
        NEEDS(running_mean, OP_READS, F32_BIT);
        NEEDS(running_var, OP_READS, F32_BIT);
        NEEDS(y, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_NORM_BACKWARD: {
        const struct op_norm *u = &desc->u.norm;
        NEEDS(x, OP_READS, DATA_BITS);
        list_tensor(&list, "y", &u->y, OP_READS, u->relu, DATA_BITS);
        NEEDS(dy, OP_READS, DATA_BITS);
        NEEDS(scale, OP_READS, F32_BIT);
        MAY(bias, OP_READS, F32_BIT);
        NEEDS(saved_mean, OP_READS, F32_BIT);
        NEEDS(saved_inv_std, OP_READS, F32_BIT);
        NEEDS(dx, OP_WRITES, DATA_BITS);
        MAY(dresidual, OP_WRITES, DATA_BITS);
        NEEDS(dscale, OP_WRITES, F32_BIT);
        NEEDS(dbias, OP_WRITES, F32_BIT);
        break;
    }
    case OP_RELU_BACKWARD: {
        const struct op_relu_backward *u = &desc->u.relu;
        NEEDS(y, OP_READS, DATA_BITS);
        NEEDS(dy, OP_READS, DATA_BITS);
        NEEDS(dx, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_ADD: {
        const struct op_add *u = &desc->u.add;
        NEEDS(a, OP_READS, DATA_BITS);
        NEEDS(b, OP_READS, DATA_BITS);
        NEEDS(y, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_MAX_POOL: {
        const struct op_max_pool *u = &desc->u.pool;
        NEEDS(x, OP_READS, DATA_BITS);
        NEEDS(y, OP_WRITES, DATA_BITS);
        MAY(index, OP_WRITES, U8_BIT);
        break;
    }
    case OP_MAX_POOL_BACKWARD: {
        const struct op_max_pool *u = &desc->u.pool;
        NEEDS(x, OP_READS, DATA_BITS);
        NEEDS(y, OP_READS, DATA_BITS);
        MAY(index, OP_READS, U8_BIT);
        NEEDS(dy, OP_READS, DATA_BITS);
        NEEDS(dx, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_GLOBAL_AVERAGE: {
        const struct op_global_average *u = &desc->u.average;
        NEEDS(x, OP_READS, DATA_BITS);
        NEEDS(y, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_GLOBAL_AVERAGE_BACKWARD: {
        const struct op_global_average *u = &desc->u.average;
        NEEDS(dy, OP_READS, DATA_BITS);
        NEEDS(dx, OP_WRITES, DATA_BITS);
        break;
    }
    case OP_LINEAR: {
        const struct op_linear *u = &desc->u.linear;
        NEEDS(x, OP_READS, F32_BIT);
        NEEDS(w, OP_READS, F32_BIT);
        MAY(bias, OP_READS, F32_BIT);
        NEEDS(y, OP_WRITES, F32_BIT);
        break;
    }
    case OP_LINEAR_BACKWARD_DATA: {
        const struct op_linear *u = &desc->u.linear;
        NEEDS(dy, OP_READS, F32_BIT);
        NEEDS(w, OP_READS, F32_BIT);
        NEEDS(dx, OP_WRITES, F32_BIT);
        break;
    }
    case OP_LINEAR_BACKWARD_WEIGHTS: {
        const struct op_linear *u = &desc->u.linear;
        NEEDS(x, OP_READS, F32_BIT);
        NEEDS(dy, OP_READS, F32_BIT);
        NEEDS(dw, OP_WRITES, F32_BIT);
        MAY(db, OP_WRITES, F32_BIT);
        break;
    }
    case OP_SOFTMAX_LOSS: {
        const struct op_softmax_loss *u = &desc->u.loss;
        NEEDS(logits, OP_READS, F32_BIT);
        NEEDS(targets, OP_READS, F32_BIT);
        NEEDS(loss, OP_WRITES, F32_BIT);
        MAY(dlogits, OP_WRITES, F32_BIT);
        break;
    }
    case OP_CAST: {
        const struct op_cast *u = &desc->u.cast;
        NEEDS(from, OP_READS, DATA_BITS | U8_BIT);
        NEEDS(to, OP_WRITES, DATA_BITS | U8_BIT);
        break;
    }
    case OP_SGD:
    case OP_ADAMW: {
        const struct op_update *u = &desc->u.update;
        NEEDS(parameters, OP_READS | OP_WRITES, F32_BIT);
        NEEDS(gradient, OP_READS, DATA_BITS);
        NEEDS(first, OP_READS | OP_WRITES, F32_BIT);
        if (desc->kind == OP_ADAMW) {
            NEEDS(second, OP_READS | OP_WRITES, F32_BIT);
        }
        MAY(shadow, OP_WRITES, BF16_BIT);
        NEEDS(scalars, OP_READS, F32_BIT);
        break;
    }
    }
    return list.count;
}

#undef NEEDS
#undef MAY

char *device__describe_op(const struct op_desc *desc, char *text, size_t bytes)
{
    const char *label = desc->label != NULL && desc->label[0] != '\0'
                            ? desc->label
                            : device__op_kind_name(desc->kind);
    size_t used = 0;
    int written = snprintf(text, bytes, "%s", label);
    struct op_tensor items[OP_TENSORS_MAX];
    int count = device__op_tensors(desc, items);
    const char *separator = ": ";
    for (int i = 0; i < count; i++) {
        if (written < 0 || (size_t)written >= bytes - used) {
            return text;
        }
        used += (size_t)written;
        const struct tensor *t = items[i].tensor;
        if (t->buffer == NULL) {
            written = 0;
            continue;
        }
        written = snprintf(text + used, bytes - used, "%s%s %dx%dx%dx%d %s", separator,
                           items[i].name, t->n, t->h, t->w, t->c, device__dtype_name(t->dtype));
        separator = ", ";
    }
    return text;
}
