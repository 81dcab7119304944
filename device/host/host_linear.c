/* Matrix products by CBLAS, whose own threads are switched off: parts and their order are ours. */
#include <assert.h>
#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "device/host/host_internal.h"

/* Rows of a batch in one product, so that parts follow from the shape. */
#define LINEAR_ROWS 32

/* Rows of logits in one part of the loss. */
#define LOSS_ROWS 32

static int row_parts(int rows, int part_rows)
{
    return (rows + part_rows - 1) / part_rows;
}

static int rows_of(int rows, int part_rows, int part)
{
    int left = rows - part * part_rows;
    return left < part_rows ? left : part_rows;
}

/* --- Linear layer ----------------------------------------------------------------------------- */

static void linear_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_linear *u = &op->desc.u.linear;
    (void)worker;
    int first = part * LINEAR_ROWS;
    int rows = rows_of(u->x.n, LINEAR_ROWS, part);
    int in = u->w.c, out = u->w.n;
    float *y = host__f32(host, op, &u->y) + (size_t)first * (size_t)out;
    float keep = 0.0F;
    if (u->bias.buffer != NULL) {
        const float *bias = host__f32(host, op, &u->bias);
        for (int n = 0; n < rows; n++) {
            memcpy(y + (size_t)n * (size_t)out, bias, (size_t)out * sizeof *y);
        }
        keep = 1.0F;
    }
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, out, in, u->factor,
                host__f32(host, op, &u->x) + (size_t)first * (size_t)in, in,
                host__f32(host, op, &u->w), in, keep, y, out);
}

static void linear(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->parts, linear_part);
}

static void linear_data_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_linear *u = &op->desc.u.linear;
    (void)worker;
    int first = part * LINEAR_ROWS;
    int rows = rows_of(u->dx.n, LINEAR_ROWS, part);
    int in = u->w.c, out = u->w.n;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, in, out, u->factor,
                host__f32(host, op, &u->dy) + (size_t)first * (size_t)out, out,
                host__f32(host, op, &u->w), in, 0.0F,
                host__f32(host, op, &u->dx) + (size_t)first * (size_t)in, in);
}

static void linear_data(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->parts, linear_data_part);
}

static void linear_weights(struct host_device *host, const device_op *op)
{
    const struct op_linear *u = &op->desc.u.linear;
    int rows = u->x.n, in = u->x.c, out = u->dy.c;
    const float *dy = host__f32(host, op, &u->dy);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, rows, u->factor, dy, out,
                host__f32(host, op, &u->x), in, 0.0F, host__f32(host, op, &u->dw), in);
    if (u->db.buffer != NULL) {
        float *db = host__f32(host, op, &u->db);
        double *sum = (double *)(void *)host__scratch(host, op);
        memset(sum, 0, (size_t)out * sizeof *sum);
        host->kernels->channel_sums(dy, (size_t)rows, (size_t)out, sum);
        for (int o = 0; o < out; o++) {
            db[o] = (float)sum[o];
        }
    }
}

/* --- Loss ------------------------------------------------------------------------------------- */

/* One row in double; returns its loss. The largest logit is taken off first, so that nothing
 * overflows; a NaN or infinity among the logits makes the loss a NaN. */
static double loss_row(const float *logits, const float *targets, float *dlogits, size_t classes)
{
    double top = (double)logits[0];
    for (size_t c = 1; c < classes; c++) {
        top = (double)logits[c] > top ? (double)logits[c] : top;
    }
    double total = exp((double)logits[0] - top), targets_sum = (double)targets[0], loss = 0.0;
    for (size_t c = 1; c < classes; c++) {
        total += exp((double)logits[c] - top);
        targets_sum += (double)targets[c];
    }
    double log_total = log(total);
    for (size_t c = 0; c < classes; c++) {
        loss -= (double)targets[c] * ((double)logits[c] - top - log_total);
    }
    if (dlogits != NULL) {
        for (size_t c = 0; c < classes; c++) {
            double share = exp((double)logits[c] - top) / total;
            dlogits[c] = (float)(share * targets_sum - (double)targets[c]);
        }
    }
    return loss;
}

static void loss_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_softmax_loss *u = &op->desc.u.loss;
    (void)worker;
    size_t classes = (size_t)u->logits.c;
    size_t first = (size_t)part * LOSS_ROWS;
    int rows = rows_of(u->logits.n, LOSS_ROWS, part);
    double *loss = (double *)(void *)host__scratch(host, op) + part;
    *loss = 0.0;
    for (size_t n = first; n < first + (size_t)rows; n++) {
        float *dlogits =
            u->dlogits.buffer != NULL ? host__f32(host, op, &u->dlogits) + n * classes : NULL;
        *loss += loss_row(host__f32(host, op, &u->logits) + n * classes,
                          host__f32(host, op, &u->targets) + n * classes, dlogits, classes);
    }
}

static void softmax_loss(struct host_device *host, const device_op *op)
{
    const double *parts = (const double *)(const void *)host__scratch(host, op);
    double loss = 0.0;
    host__parallel(host, op, op->parts, loss_part);
    for (int part = 0; part < op->parts; part++) {
        loss += parts[part];
    }
    *host__f32(host, op, &op->desc.u.loss.loss) = (float)loss;
}

void host__plan_linear(struct host_device *host, device_op *op, size_t *scratch_bytes)
{
    const struct op_linear *u = &op->desc.u.linear;
    (void)host;
    switch (op->desc.kind) {
    case OP_LINEAR:
        op->run = linear;
        op->parts = row_parts(u->x.n, LINEAR_ROWS);
        break;
    case OP_LINEAR_BACKWARD_DATA:
        op->run = linear_data;
        op->parts = row_parts(u->dx.n, LINEAR_ROWS);
        break;
    case OP_LINEAR_BACKWARD_WEIGHTS:
        op->run = linear_weights;
        *scratch_bytes = (size_t)u->dy.c * sizeof(double);
        break;
    case OP_SOFTMAX_LOSS:
        op->run = softmax_loss;
        op->parts = row_parts(op->desc.u.loss.logits.n, LOSS_ROWS);
        *scratch_bytes = (size_t)op->parts * sizeof(double);
        break;
    default:
        assert(!"not a matrix operation");
    }
}

/* --- The BLAS itself -------------------------------------------------------------------------- */

const char *host__blas_core(void)
{
    return openblas_get_corename();
}

void host__blas_describe(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s, kernel %s", openblas_get_config(), openblas_get_corename());
}

#define CHECK_ROWS 37
#define CHECK_COLUMNS 29
#define CHECK_DEPTH 67

/* Small whole numbers, whose products are exact in float32 in any order. */
static float check_value(int row, int column)
{
    return (float)((row * 7 + column * 3) % 11 - 5);
}

/* Element (i, j) of `matrix`, rows or columns of `columns` values. */
static float *element(float *matrix, int columns, bool transposed, int i, int j)
{
    return transposed ? matrix + j * columns + i : matrix + i * columns + j;
}

enum status host__blas_check(void)
{
    static const bool transposes[3][2] = {{false, true}, {false, false}, {true, false}};
    float a[CHECK_ROWS * CHECK_DEPTH], b[CHECK_DEPTH * CHECK_COLUMNS];
    float c[CHECK_ROWS * CHECK_COLUMNS];
    openblas_set_num_threads(1);
    for (int t = 0; t < 3; t++) {
        bool ta = transposes[t][0], tb = transposes[t][1];
        int lda = ta ? CHECK_ROWS : CHECK_DEPTH, ldb = tb ? CHECK_DEPTH : CHECK_COLUMNS;
        for (int k = 0; k < CHECK_DEPTH; k++) {
            for (int i = 0; i < CHECK_ROWS; i++) {
                *element(a, lda, ta, i, k) = check_value(i, k);
            }
            for (int j = 0; j < CHECK_COLUMNS; j++) {
                *element(b, ldb, tb, k, j) = check_value(k, j);
            }
        }
        cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans,
                    CHECK_ROWS, CHECK_COLUMNS, CHECK_DEPTH, 1.0F, a, lda, b, ldb, 0.0F, c,
                    CHECK_COLUMNS);
        for (int i = 0; i < CHECK_ROWS; i++) {
            for (int j = 0; j < CHECK_COLUMNS; j++) {
                float sum = 0.0F;
                for (int k = 0; k < CHECK_DEPTH; k++) {
                    sum += check_value(i, k) * check_value(k, j);
                }
                if (c[i * CHECK_COLUMNS + j] != sum) {
                    return FAIL(STATUS_DEVICE,
                                "OpenBLAS (%s) computes wrong products on this processor: set "
                                "OPENBLAS_CORETYPE=Haswell, or install a newer OpenBLAS",
                                openblas_get_corename());
                }
            }
        }
    }
    return STATUS_OK;
}
