// SPDX-License-Identifier: Apache-2.0
#include "base/library.h"

#include "test.h"

#include <math.h>

static double square_root(double x);
static double hypotenuse(double x, double y);

/* Functions of libm under names of our own: LIBRARY_DEFINE would define sqrt itself. */
#define CALLS(F)                                                                                   \
    F(static double, square_root, (double x), (x))                                                 \
    F(static double, hypotenuse, (double x, double y), (x, y))
enum { CALLS(LIBRARY_INDEX) NUM_CALLS };
static const char *const names[] = {"sqrt", "hypot"};
static const struct library library = {"libm", "libabsent-7.so libm.so.6", "libabsent-7.so", names,
                                       NUM_CALLS};
CALLS(LIBRARY_CALL)

TEST(functions_of_an_open_library_can_be_called)
{
    CHECK_STATUS(OK, library_open(&library));
    CHECK_STATUS(OK, library_open(&library));
    CHECK(square_root(9) == 3 && hypotenuse(3, 4) == 5);
}

TEST(a_missing_library_is_reported_with_its_file_every_time)
{
    static const struct library absent = {"libabsent", "libabsent-7.so.1", NULL, names, 2};
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(UNSUPPORTED, library_open(&absent));
        CHECK_MESSAGE("libabsent is not installed: libabsent-7.so.1: ");
        CHECK_MESSAGE("LD_LIBRARY_PATH");
    }
}

TEST(a_library_without_one_of_the_functions_is_reported_with_the_function)
{
    static const char *const others[] = {"sqrt", "square_the_root"};
    static const struct library old = {"libm", "libm.so.6", NULL, others, 2};
    CHECK_STATUS(UNSUPPORTED, library_open(&old));
    CHECK_MESSAGE("libm: libm.so.6 has no function square_the_root");
}
