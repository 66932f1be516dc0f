// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/normal.h"

/* The definition, element by element, with the C library's functions. */
static float defined_element(const struct normal_stream *s, uint64_t element)
{
    for (uint64_t attempt = 0;; attempt++) {
        uint64_t position = attempt ? element : element / 2 * 2;
        struct rng_block b = rng_bits(s->seed, s->purpose, s->stream | attempt << 32, position);
        uint64_t u = (uint64_t)b.bits[0] << 21 | b.bits[1] >> 11,
                 v = (uint64_t)b.bits[2] << 21 | b.bits[3] >> 11;
        double angle = 6.283185307179586 * ldexp((double)v, -53);
        double radius = sqrt(-2 * log(1 - ldexp((double)u, -53)));
        double x = radius * (element % 2 && !attempt ? sin(angle) : cos(angle));
        if (fabs(x) <= s->limit) return (float)(x * s->std);
    }
}

static void check_stream(const struct normal_stream *s, uint64_t first, size_t count)
{
    float *w = heap((count + 1) * sizeof *w);
    w[count] = 7;
    normal_fill(s, first, count, w);
    for (size_t i = 0; i < count; i++) {
        float want = defined_element(s, first + i);
        if (memcmp(&w[i], &want, sizeof want))
            fail_msg("element %llu is %.9g, expected %.9g", (unsigned long long)(first + i),
                     (double)w[i], (double)want);
    }
    CHECK(w[count] == 7);
    free(w);
}

TEST(normals_of_whole_arrays_have_the_bits_of_the_c_library)
{
    check_stream(&(struct normal_stream){1, RNG_INIT, 3, 1, INFINITY}, 0, 200000);
    check_stream(&(struct normal_stream){2, RNG_INIT, 0, 0.02, INFINITY}, UINT64_C(1) << 33,
                 100000);
    check_stream(&(struct normal_stream){3, RNG_INIT, 9, 0.036, 3}, 0, 100000);
    check_stream(&(struct normal_stream){3, RNG_INIT, 9, 1, 0.5}, 0, 10000);
}

TEST(normals_do_not_depend_on_where_an_array_begins_and_ends)
{
    const struct normal_stream s = {5, RNG_TEST, 4, 0.5, 2};
    for (uint64_t first = 0; first < 5; first++)
        for (size_t count = 0; count < 5; count++) check_stream(&s, first, count);
    check_stream(&s, 255, 2), check_stream(&s, 254, 515), check_stream(&s, 1, 1023);
}

TEST(normals_have_mean_0_and_deviation_1)
{
    enum { N = 1 << 20 };
    float *w = heap(N * sizeof *w);
    double sum = 0, squares = 0;
    normal_fill(&(struct normal_stream){6, RNG_TEST, 1, 1, INFINITY}, 0, N, w);
    for (int i = 0; i < N; i++) sum += (double)w[i], squares += (double)w[i] * (double)w[i];
    CHECK_NEAR(sum / N, 0, 0.004);
    CHECK_NEAR(squares / N, 1, 0.006);
    free(w);
}
