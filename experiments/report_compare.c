/* Two results side by side. */
#include <math.h>
#include <string.h>

#include "experiments/report.h"

/* Log ratio of two independent sets of rates with Welch's interval (B. L. Welch, "The generalization
 * of Student's problem when several different population variances are involved", 1947). */
static void welch(const double *a, size_t count_a, const double *b, size_t count_b, double *ratio,
                  double *low, double *high)
{
    double log_a[RESULT_MAX_ROUNDS], log_b[RESULT_MAX_ROUNDS];
    for (size_t i = 0; i < count_a; i++) {
        log_a[i] = log(a[i]);
    }
    for (size_t i = 0; i < count_b; i++) {
        log_b[i] = log(b[i]);
    }
    const double na = (double)count_a, nb = (double)count_b;
    const double difference = statistics_mean(log_a, count_a) - statistics_mean(log_b, count_b);
    const double da = statistics_deviation(log_a, count_a),
                 db = statistics_deviation(log_b, count_b);
    const double va = da * da / na, vb = db * db / nb;
    double half = 0;
    if (va + vb > 0) {
        const double freedom = (va + vb) * (va + vb) / (va * va / (na - 1) + vb * vb / (nb - 1));
        half = statistics_t_quantile(0.975, freedom) * sqrt(va + vb);
    }
    *ratio = exp(difference);
    *low = exp(difference - half);
    *high = exp(difference + half);
}

static bool same(const struct json_value *a, const struct json_value *b)
{
    if (!a || !b || a->kind != b->kind) {
        return a == b;
    }
    if (a->kind == JSON_STRING) {
        return strcmp(a->string, b->string) == 0;
    }
    if (a->kind == JSON_NUMBER) {
        return a->number == b->number;
    }
    if (a->kind == JSON_BOOL) {
        return a->boolean == b->boolean;
    }
    if (a->kind == JSON_ARRAY) {
        bool equal = a->count == b->count;
        for (size_t i = 0; equal && i < a->count; i++) {
            equal = same(&a->items[i], &b->items[i]);
        }
        return equal;
    }
    return true;
}

static void print_value(FILE *out, const struct json_value *value)
{
    if (!value) {
        fprintf(out, "absent");
        return;
    }
    if (value->kind == JSON_ARRAY && value->count > 3) {
        fprintf(out, "%zu entries", value->count);
        return;
    }
    struct json_writer writer;
    json_writer_init(&writer, out, false);
    json_copy(&writer, value);
}

/* Members that one or both have and that are not equal; values of objects are not looked into. */
static int print_differences(const struct result_view *a, const struct result_view *b,
                             const char *group, FILE *out)
{
    const struct json_value *of_a = json_member(a->root, group);
    const struct json_value *of_b = json_member(b->root, group);
    int found = 0;
    for (size_t side = 0; side < 2; side++) {
        const struct json_value *from = side == 0 ? of_a : of_b;
        for (size_t i = 0; from && i < from->count; i++) {
            const struct json_value *in_a = json_member(of_a, from->names[i]);
            const struct json_value *in_b = json_member(of_b, from->names[i]);
            if (same(in_a, in_b) || (side == 1 && in_a)) {
                continue;
            }
            fprintf(out, "  %s %s: ", group, from->names[i]);
            print_value(out, in_a);
            fprintf(out, " -> ");
            print_value(out, in_b);
            fputc('\n', out);
            found++;
        }
    }
    return found;
}

/* What the rates of a result are worth: it may have none, lack some, or be of cells that cannot be
 * compared. */
static void print_side(const struct result_view *view, char side, const char *name, FILE *out)
{
    const struct json_value *failures = json_member(view->root, "failures");
    fprintf(out, "%c: %s (%zu round%s%s)\n", side, name, view->rounds, view->rounds == 1 ? "" : "s",
            view->rounds == 0 ? ": predictions alone"
            : !view->finished ? ", not finished"
                              : "");
    if (view->failures > 0) {
        const char *first = failures->items[0].string;
        fprintf(out, "   FAILED: %s\n", first ? first : "its cells cannot be compared");
    }
}

static void print_rate(const struct result_view *view, const struct result_cell *cell, FILE *out)
{
    if (view->rounds > 0) {
        fprintf(out, " %11.0f", cell->median);
    } else {
        fprintf(out, " %11s", "-");
    }
}

void report_compare(const struct result_view *a, const struct result_view *b, const char *name_a,
                    const char *name_b, FILE *out)
{
    int common = 0;
    print_side(a, 'A', name_a, out);
    print_side(b, 'B', name_b, out);
    fprintf(out, "\n%-24s %11s %11s %9s %20s\n", "cell", "A samples/s", "B samples/s", "B/A",
            "95 % interval");
    for (size_t c = 0; c < a->cell_count; c++) {
        const struct result_cell *in_a = &a->cells[c];
        const struct result_cell *in_b = result_find_cell(b, in_a->name);
        if (!in_b) {
            continue;
        }
        common++;
        fprintf(out, "%-24s", in_a->name);
        print_rate(a, in_a, out);
        print_rate(b, in_b, out);
        if (a->rounds >= 2 && b->rounds >= 2) {
            double ratio, low, high;
            welch(in_b->rates, b->rounds, in_a->rates, a->rounds, &ratio, &low, &high);
            fprintf(out, " %9.4f %9.4f - %8.4f%s", ratio, low, high,
                    low > 1 || high < 1 ? "" : "  (none shown)");
        }
        fputc('\n', out);
    }
    if (common == 0) {
        fprintf(out, "(no cell in common)\n");
    }
    for (size_t i = 0; i < a->effect_count; i++) {
        const struct effect *in_a = &a->effects[i];
        const struct effect *in_b = result_find_effect(b, in_a->name);
        if (in_b && in_a->verdict != in_b->verdict) {
            fprintf(out, "\nVerdicts differ on %s: %s in A, %s in B.\n", in_a->name,
                    verdict_text(in_a->verdict), verdict_text(in_b->verdict));
        }
    }
    fprintf(out, "\nWhat differs between them:\n");
    const int found = print_differences(a, b, "job", out) +
                      print_differences(a, b, "protocol", out) +
                      print_differences(a, b, "machine", out) +
                      print_differences(a, b, "device", out) + print_differences(a, b, "data", out);
    if (found == 0) {
        fprintf(out, "  nothing that was recorded\n");
    }
}
