/*
 * The pixels of made images. Only operations that IEEE 754 rounds exactly are used (no library sine
 * or logarithm), so that every machine makes the same bytes.
 */
#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "data/synth.h"

#define OCTAVES 4
#define MOST_CLUTTER 4
/* From this radius on, in pixels, no part of a shape is so thin that it passes between the corners of
 * a pixel; then most pixels are known from their corners. */
#define LARGE_RADIUS 16.0F

const char *synth_class_name(int class_id)
{
    static const char *const names[SYNTH_CLASSES] = {"checker", "circle",  "crescent", "cross",
                                                     "heart",   "ring",    "square",   "star",
                                                     "stripes", "triangle"};
    assert(class_id >= 0 && class_id < SYNTH_CLASSES);
    return names[class_id];
}

enum shape {
    SHAPE_CHECKER,
    SHAPE_CIRCLE,
    SHAPE_CRESCENT,
    SHAPE_CROSS,
    SHAPE_HEART,
    SHAPE_RING,
    SHAPE_SQUARE,
    SHAPE_STAR,
    SHAPE_STRIPES,
    SHAPE_TRIANGLE
};

/* --- Shapes, each within the unit circle or little beyond, v upwards ------------------------ */

static int inside_star(float u, float v)
{
    /* Ten corners, alternately at radius 1 and 0.42, the first one upwards. */
    static const float corner[10][2] = {{0.0F, 1.0F},           {-0.24687F, 0.33979F},
                                        {-0.95106F, 0.30902F},  {-0.39944F, -0.12979F},
                                        {-0.58779F, -0.80902F}, {0.0F, -0.42F},
                                        {0.58779F, -0.80902F},  {0.39944F, -0.12979F},
                                        {0.95106F, 0.30902F},   {0.24687F, 0.33979F}};
    int inside = 0;
    for (int i = 0, j = 9; i < 10; j = i++) {
        const float ui = corner[i][0], vi = corner[i][1], uj = corner[j][0], vj = corner[j][1];
        if ((vi > v) != (vj > v) && u < (uj - ui) * (v - vi) / (vj - vi) + ui) {
            inside = !inside;
        }
    }
    return inside;
}

static int inside_shape(enum shape shape, float u, float v)
{
    const float square = u * u + v * v;
    switch (shape) {
    case SHAPE_CHECKER: {
        if (fabsf(u) > 0.9F || fabsf(v) > 0.9F) {
            return 0;
        }
        const int column = (int)((u + 0.9F) / 0.45F), row = (int)((v + 0.9F) / 0.45F);
        return (column + row) % 2 == 0;
    }
    case SHAPE_CIRCLE:
        return square <= 0.81F;
    case SHAPE_CRESCENT: {
        const float shifted = (u - 0.45F) * (u - 0.45F) + v * v;
        return square <= 0.95F && shifted > 0.64F;
    }
    case SHAPE_CROSS:
        return (fabsf(u) <= 0.27F && fabsf(v) <= 0.95F) || (fabsf(v) <= 0.27F && fabsf(u) <= 0.95F);
    case SHAPE_HEART: {
        /* Two discs above, and the wedge that touches both below. */
        const float side = fabsf(u) - 0.48F, above = v - 0.35F;
        return side * side + above * above <= 0.25F ||
               (v >= -0.95F && v <= 0.25F && fabsf(u) <= 0.82F * (v + 0.95F));
    }
    case SHAPE_RING:
        return square <= 0.95F && square >= 0.36F;
    case SHAPE_SQUARE:
        return fabsf(u) <= 0.75F && fabsf(v) <= 0.75F;
    case SHAPE_STAR:
        return inside_star(u, v);
    case SHAPE_STRIPES: {
        if (fabsf(u) > 0.9F || fabsf(v) > 0.9F) {
            return 0;
        }
        return (int)((v + 0.9F) / 0.36F) % 2 == 0;
    }
    case SHAPE_TRIANGLE:
        return v >= -0.55F && 1.7320508F * fabsf(u) + v <= 1.1F;
    }
    return 0;
}

/* --- Texture ------------------------------------------------------------------------------- */

/* Mixes a lattice point into 32 bits; cheap, since each pixel needs a score of them. */
static uint32_t mix(uint32_t key, uint32_t x, uint32_t y)
{
    uint32_t h = key ^ (x * UINT32_C(0x9E3779B1)) ^ (y * UINT32_C(0x85EBCA77));
    h ^= h >> 15;
    h *= UINT32_C(0x2C1B3C6D);
    h ^= h >> 12;
    h *= UINT32_C(0x297A2D39);
    h ^= h >> 15;
    return h;
}

/* -1 to 1. */
static float lattice(uint32_t key, uint32_t x, uint32_t y)
{
    return (float)(mix(key, x, y) >> 8) * 0x1p-23F - 1.0F;
}

/* Value noise: random values on a lattice of `cell` pixels, smoothly joined. */
static float smooth_noise(uint32_t key, float x, float y, float cell)
{
    const float fx = x / cell, fy = y / cell;
    const uint32_t ix = (uint32_t)fx, iy = (uint32_t)fy;
    const float tx = fx - (float)ix, ty = fy - (float)iy;
    const float sx = tx * tx * (3.0F - 2.0F * tx), sy = ty * ty * (3.0F - 2.0F * ty);
    const float top = lattice(key, ix, iy) * (1.0F - sx) + lattice(key, ix + 1, iy) * sx;
    const float bottom = lattice(key, ix, iy + 1) * (1.0F - sx) + lattice(key, ix + 1, iy + 1) * sx;
    return top * (1.0F - sy) + bottom * sy;
}

/* --- One scene ----------------------------------------------------------------------------- */

/* A small mark in the background that belongs to no class. */
struct clutter {
    float x, y, radius, colour[3];
};

struct scene {
    enum shape shape;
    float x, y;   /* centre, pixels */
    float radius; /* pixels */
    float cosine, sine;
    float aspect;       /* stretch of u against v */
    float colour[3];    /* of the shape, 0 to 255 */
    float shade;        /* change of brightness across the shape */
    float ground[2][3]; /* colours of the background, one passing into the other */
    float slope[2];     /* direction of that passage, a pixel */
    float texture;      /* amplitude, 0 to 255 */
    float tint[3];      /* of the texture, a channel */
    float grain;        /* amplitude of the noise of each pixel */
    float cell[OCTAVES];
    uint32_t key;
    int clutter_count;
    struct clutter clutter[MOST_CLUTTER];
};

static float between(struct rng *rng, float low, float high)
{
    return low + (high - low) * rng_uniform(rng);
}

static float brightness(const float *colour)
{
    return 0.299F * colour[0] + 0.587F * colour[1] + 0.114F * colour[2];
}

static void draw_colour(struct rng *rng, float low, float high, float *colour)
{
    for (int c = 0; c < 3; c++) {
        colour[c] = between(rng, low, high);
    }
}

/* A colour whose brightness differs from that of the ground by at least `contrast`. */
static void draw_contrasting(struct rng *rng, float ground, float contrast, float *colour)
{
    for (int tries = 0; tries < 32; tries++) {
        draw_colour(rng, 5.0F, 250.0F, colour);
        if (fabsf(brightness(colour) - ground) >= contrast) {
            return;
        }
    }
    for (int c = 0; c < 3; c++) {
        colour[c] = ground > 127.0F ? ground - contrast : ground + contrast;
    }
}

/* A turn by a uniform tangent of the half angle: sine and cosine without a library function. */
static void draw_turn(struct rng *rng, struct scene *scene)
{
    const float t = between(rng, -0.27F, 0.27F); /* up to 30 degrees to either side */
    const float scale = 1.0F / (1.0F + t * t);
    scene->cosine = (1.0F - t * t) * scale;
    scene->sine = 2.0F * t * scale;
    /* Quarter turns on top, for shapes that have another face from each side. */
    for (uint32_t quarter = rng_below(rng, 4); quarter > 0; quarter--) {
        const float sine = scene->sine;
        scene->sine = scene->cosine;
        scene->cosine = -sine;
    }
}

static void draw_scene(const struct synth_settings *settings, enum synth_split split, size_t index,
                       struct scene *scene)
{
    struct rng rng;
    rng_init(&rng, settings->seed, RNG_SYNTH, (uint32_t)split, index);
    const float width = (float)settings->width, height = (float)settings->height;
    const float edge = width < height ? width : height;

    scene->shape = (enum shape)(index % SYNTH_CLASSES);
    scene->radius = edge * between(&rng, 0.24F, 0.44F);
    const float margin = scene->radius * 0.9F;
    scene->x = between(&rng, margin, width - margin);
    scene->y = between(&rng, margin, height - margin);
    scene->aspect = between(&rng, 0.92F, 1.08F);
    draw_turn(&rng, scene);

    draw_colour(&rng, 30.0F, 225.0F, scene->ground[0]);
    for (int c = 0; c < 3; c++) {
        scene->ground[1][c] = scene->ground[0][c] + between(&rng, -60.0F, 60.0F);
    }
    scene->slope[0] = between(&rng, -1.0F, 1.0F) / width;
    scene->slope[1] = between(&rng, -1.0F, 1.0F) / height;
    scene->texture = between(&rng, 8.0F, 36.0F);
    for (int c = 0; c < 3; c++) {
        scene->tint[c] = between(&rng, 0.5F, 1.0F);
    }
    scene->grain = between(&rng, 3.0F, 14.0F);
    float cell = edge / 2.5F;
    for (int i = 0; i < OCTAVES; i++) {
        scene->cell[i] = cell < 2.0F ? 2.0F : cell;
        cell *= 0.45F;
    }
    const float ground = 0.5F * (brightness(scene->ground[0]) + brightness(scene->ground[1]));
    draw_contrasting(&rng, ground, between(&rng, 45.0F, 100.0F), scene->colour);
    scene->shade = between(&rng, -25.0F, 25.0F);
    scene->key = rng_u32(&rng);

    scene->clutter_count = (int)rng_below(&rng, MOST_CLUTTER + 1);
    for (int i = 0; i < scene->clutter_count; i++) {
        struct clutter *clutter = &scene->clutter[i];
        clutter->x = between(&rng, 0.0F, width);
        clutter->y = between(&rng, 0.0F, height);
        clutter->radius = edge * between(&rng, 0.02F, 0.07F);
        draw_colour(&rng, 0.0F, 255.0F, clutter->colour);
    }
}

/* --- Pixels -------------------------------------------------------------------------------- */

/* Whether the shape covers point (i, j) of the 4 x 4 points of a pixel. */
static int covers(const struct scene *scene, int x, int y, int i, int j)
{
    const float dx = ((float)x + ((float)i + 0.5F) * 0.25F - scene->x) / scene->radius;
    const float dy = (scene->y - (float)y - ((float)j + 0.5F) * 0.25F) / scene->radius;
    const float u = (dx * scene->cosine + dy * scene->sine) * scene->aspect;
    const float v = (dy * scene->cosine - dx * scene->sine) / scene->aspect;
    return inside_shape(scene->shape, u, v);
}

/* How much of the pixel the shape covers, from 4 x 4 points in it. */
static float coverage(const struct scene *scene, int x, int y)
{
    const float reach = scene->radius * 1.35F + 1.0F;
    if (fabsf((float)x + 0.5F - scene->x) > reach || fabsf((float)y + 0.5F - scene->y) > reach) {
        return 0.0F;
    }
    if (scene->radius >= LARGE_RADIUS) {
        const int corners = covers(scene, x, y, 0, 0) + covers(scene, x, y, 3, 0) +
                            covers(scene, x, y, 0, 3) + covers(scene, x, y, 3, 3);
        if (corners == 0 || corners == 4) {
            return (float)corners * 0.25F;
        }
    }
    int hits = 0;
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 4; i++) {
            hits += covers(scene, x, y, i, j);
        }
    }
    return (float)hits * 0.0625F;
}

static void draw_background(const struct scene *scene, int x, int y, float *pixel)
{
    const float px = (float)x, py = (float)y;
    float passage = 0.5F + (px * scene->slope[0] + py * scene->slope[1]) * 0.5F;
    passage = passage < 0.0F ? 0.0F : passage > 1.0F ? 1.0F : passage;
    float noise = 0.0F, weight = 0.5F;
    for (int i = 0; i < OCTAVES; i++) {
        noise += weight * smooth_noise(scene->key + (uint32_t)i, px, py, scene->cell[i]);
        weight *= 0.7F;
    }
    for (int c = 0; c < 3; c++) {
        pixel[c] = scene->ground[0][c] * (1.0F - passage) + scene->ground[1][c] * passage +
                   noise * scene->texture * scene->tint[c];
    }
    for (int i = 0; i < scene->clutter_count; i++) {
        const struct clutter *clutter = &scene->clutter[i];
        const float dx = px + 0.5F - clutter->x, dy = py + 0.5F - clutter->y;
        if (dx * dx + dy * dy <= clutter->radius * clutter->radius) {
            for (int c = 0; c < 3; c++) {
                pixel[c] = clutter->colour[c];
            }
        }
    }
}

static uint8_t to_byte(float value)
{
    return (uint8_t)(value <= 0.0F ? 0 : value >= 254.5F ? 255 : (int)(value + 0.5F));
}

void synth_render(const struct synth_settings *settings, enum synth_split split, size_t index,
                  uint8_t *rgb)
{
    struct scene scene;
    draw_scene(settings, split, index, &scene);
    for (int y = 0; y < settings->height; y++) {
        for (int x = 0; x < settings->width; x++) {
            float pixel[3];
            draw_background(&scene, x, y, pixel);
            const float covered = coverage(&scene, x, y);
            const float shade = scene.shade * ((float)y - scene.y) / scene.radius;
            const uint32_t noise = mix(scene.key ^ UINT32_C(0x5BD1E995), (uint32_t)x, (uint32_t)y);
            for (int c = 0; c < 3; c++) {
                const float shown =
                    pixel[c] * (1.0F - covered) + (scene.colour[c] + shade) * covered;
                const float grain = (float)((noise >> (10 * c)) & 1023U) / 511.5F - 1.0F;
                *rgb++ = to_byte(shown + scene.grain * grain);
            }
        }
    }
}
