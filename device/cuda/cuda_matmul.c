/* Matrix products of cuBLAS: chosen once, run with an explicit workspace so that they can be captured
 * into a graph. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/cuda_op.h"

#define MAX_ALGORITHMS 16

static enum status make_layouts(struct op_builder *builder, struct step *step)
{
    const struct matmul *p = &step->matmul;
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    if (p->type_ab == CUDA_R_8I) {
        compute = CUBLAS_COMPUTE_32I;
    } else if (p->type_ab == CUDA_R_32F && !p->exact &&
               builder->dev->settings.precision != PRECISION_F32) {
        compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    }
    CUBLAS_TRY(cublasLtMatmulDescCreate(&step->matmul_desc, compute, CUDA_R_32F));
    cublasOperation_t transpose = CUBLAS_OP_T;
    if (p->transpose_a) {
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(step->matmul_desc, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &transpose, sizeof transpose));
    }
    if (p->transpose_b) {
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(step->matmul_desc, CUBLASLT_MATMUL_DESC_TRANSB,
                                                  &transpose, sizeof transpose));
    }
    if (p->bias != NULL) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(step->matmul_desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                  &epilogue, sizeof epilogue));
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(
            step->matmul_desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof(void *)));
    }
    if (p->bias_gradient != NULL) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BGRADB;
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(step->matmul_desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                  &epilogue, sizeof epilogue));
        CUBLAS_TRY(cublasLtMatmulDescSetAttribute(step->matmul_desc,
                                                  CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &p->bias_gradient, sizeof(void *)));
    }
    uint64_t rows = (uint64_t)(p->transpose_a ? p->k : p->m);
    uint64_t columns = (uint64_t)(p->transpose_a ? p->m : p->k);
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&step->layout_a, p->type_ab, rows, columns, p->lda));
    rows = (uint64_t)(p->transpose_b ? p->n : p->k);
    columns = (uint64_t)(p->transpose_b ? p->k : p->n);
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&step->layout_b, p->type_ab, rows, columns, p->ldb));
    CUBLAS_TRY(cublasLtMatrixLayoutCreate(&step->layout_c, p->type_c, (uint64_t)p->m,
                                          (uint64_t)p->n, p->ldc));
    if (p->batch > 1) {
        cublasLtMatrixLayout_t layouts[3] = {step->layout_a, step->layout_b, step->layout_c};
        const int64_t strides[3] = {p->stride_a, p->stride_b, p->stride_c};
        for (int i = 0; i < 3; i++) {
            int32_t batch = p->batch;
            CUBLAS_TRY(cublasLtMatrixLayoutSetAttribute(
                layouts[i], CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
            CUBLAS_TRY(cublasLtMatrixLayoutSetAttribute(layouts[i],
                                                        CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                        &strides[i], sizeof strides[i]));
        }
    }
    return STATUS_OK;
}

/* What tells an algorithm apart from the others, as text. */
static void describe(const cublasLtMatmulAlgo_t *algorithm, char *text, size_t bytes)
{
    static const cublasLtMatmulAlgoConfigAttributes_t names[] = {
        CUBLASLT_ALGO_CONFIG_ID,
        CUBLASLT_ALGO_CONFIG_TILE_ID,
        CUBLASLT_ALGO_CONFIG_STAGES_ID,
        CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
        CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME};
    size_t length = (size_t)snprintf(text, bytes, "cublas");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int32_t value = 0;
        size_t written = 0;
        if (cublasLtMatmulAlgoConfigGetAttribute(algorithm, names[i], &value, sizeof value,
                                                 &written) != CUBLAS_STATUS_SUCCESS) {
            value = -1;
        }
        length +=
            (size_t)snprintf(text + length, bytes - length, "%c%d", i == 0 ? ':' : ',', (int)value);
    }
}

/* Takes cuBLAS's first proposal, or the required one. */
static enum status choose(struct op_builder *builder, struct step *step, const char *label,
                          bool *found)
{
    struct cuda_device *dev = builder->dev;
    const struct matmul *p = &step->matmul;
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t results[MAX_ALGORITHMS];
    int count = 0;
    size_t limit = dev->settings.workspace_limit < ((size_t)32 << 20)
                       ? dev->settings.workspace_limit
                       : (size_t)32 << 20;
    /* Sums in a fixed order alone: no scheme in which parts are added as they come. */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t error = cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
    if (error == CUBLAS_STATUS_SUCCESS && dev->settings.deterministic) {
        error = cublasLtMatmulPreferenceSetAttribute(
            preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    }
    if (error == CUBLAS_STATUS_SUCCESS) {
        error = cublasLtMatmulAlgoGetHeuristic(dev->cublas, step->matmul_desc, step->layout_a,
                                               step->layout_b, step->layout_c, step->layout_c,
                                               preference, MAX_ALGORITHMS, results, &count);
    }
    (void)cublasLtMatmulPreferenceDestroy(preference);
    *found = error == CUBLAS_STATUS_SUCCESS && count > 0;
    if (!*found) {
        return STATUS_OK;
    }
    char key[256];
    char wanted[PLAN_ID_BYTES];
    snprintf(key, sizeof key, "matmul %d,%d %c%c %dx%dx%d *%d%s%s", (int)p->type_ab, (int)p->type_c,
             p->transpose_a ? 't' : 'n', p->transpose_b ? 't' : 'n', p->m, p->n, p->k, p->batch,
             p->bias != NULL            ? " bias"
             : p->bias_gradient != NULL ? " sums"
                                        : "",
             p->exact ? " exact" : "");
    TRY(cuda__plans_wanted(dev, label, key, wanted));
    for (int i = 0; i < count; i++) {
        char id[PLAN_ID_BYTES];
        describe(&results[i].algo, id, sizeof id);
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            (wanted[0] == '\0' || strcmp(wanted, id) == 0)) {
            step->algorithm = results[i].algo;
            step->workspace = results[i].workspaceSize;
            return cuda__plans_note(dev, label, key, id);
        }
    }
    return FAIL(STATUS_MISMATCH,
                "%s: cuBLAS does not offer algorithm %s any more; --replan chooses another one",
                label, wanted);
}

enum status cuda__add_matmul(struct op_builder *builder, const struct matmul *matmul,
                             const char *part, bool *done)
{
    if (done != NULL) {
        *done = false;
    }
    if (builder->dev == NULL) {
        return STATUS_OK;
    }
    if (builder->op->step_count == OP_MAX_STEPS) {
        return FAIL(STATUS_INTERNAL, "%s has too many steps", builder->label);
    }
    char label[128];
    snprintf(label, sizeof label, "%s%s", builder->label, part);
    struct step *step = &builder->op->steps[builder->op->step_count];
    *step = (struct step){.kind = STEP_MATMUL, .matmul = *matmul};
    bool found = false;
    TRY(make_layouts(builder, step));
    TRY(choose(builder, step, label, &found));
    if (!found && done != NULL) {
        cuda__step_fini(step);
        return STATUS_OK;
    }
    if (!found) {
        return FAIL(STATUS_UNSUPPORTED, "%s: cuBLAS has no algorithm for a product of %d x %d x %d",
                    label, matmul->m, matmul->n, matmul->k);
    }
    TRY(cuda__need_workspace(builder->dev, step->workspace));
    builder->op->step_count++;
    if (done != NULL) {
        *done = true;
    }
    return STATUS_OK;
}

enum status cuda__run_matmul(struct cuda_device *dev, const struct step *step, cudaStream_t stream)
{
    const struct matmul *p = &step->matmul;
    CUBLAS_TRY(cublasLtMatmul(dev->cublas, step->matmul_desc, &p->alpha, p->a, step->layout_a, p->b,
                              step->layout_b, &p->beta, p->c, step->layout_c, p->c, step->layout_c,
                              &step->algorithm, dev->workspace, step->workspace, stream));
    return STATUS_OK;
}
