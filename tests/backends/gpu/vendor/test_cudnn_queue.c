/* vendor_attention.h without a device. */
// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "backends/gpu/queue.h"
#include "backends/gpu/vendor_attention.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

TEST(a_queue_opens_cudnn_in_a_sizing_pass_only)
{
    struct gpu_queue q = {.device = 0};
    struct attention a = {.B = 1, .T = 128, .S = 128, .H = 1, .G = 1, .K = 64, .dtype = BF16};
    bool done = true;
    CHECK_STATUS(
        OK, GPU_NAME(vendor_attention_forward)(&a, &(struct attention_fwd){0}, &q.base, &done));
    CHECK(!done && !q.attention_opened && !q.attention);
    GPU_NAME(vendor_attention_close)(&q.base);
}

static void check_does_not_open(const struct attention *a)
{
    struct gpu_queue q = {.base = {.sizing = true}};
    bool done = true;
    CHECK_STATUS(OK,
                 GPU_NAME(vendor_attention_forward)(a, &(struct attention_fwd){0}, &q.base, &done));
    CHECK(!done && !q.attention_opened && !q.attention);
}

TEST(attention_in_float32_or_in_parts_with_any_bounds_does_not_open_cudnn)
{
    struct attention a = {.B = 1, .T = 128, .S = 128, .H = 1, .G = 1, .K = 64, .dtype = F32};
    check_does_not_open(&a);
    a.dtype = BF16, a.keys = FIRST_KEYS;
    check_does_not_open(&a);
}

TEST(parts_with_any_bounds_are_logged_once)
{
    struct attention a = {.B = 1, .T = 128, .S = 128, .H = 1, .G = 1, .K = 64, .dtype = BF16};
    struct gpu_queue q = {.base = {.sizing = true}};
    struct text log = {0};
    const char *path = test_path(test_folder(), "log.txt"), *what = "ring attention with documents";
    bool done;
    a.keys = FIRST_KEYS;
    CHECK_STATUS(OK, log_open(path));
    log_set_quiet(true);
    for (int i = 0; i < 2; i++)
        CHECK_STATUS(
            OK, GPU_NAME(vendor_attention_forward)(&a, &(struct attention_fwd){0}, &q.base, &done));
    log_set_quiet(false);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    const char *first = strstr(log.data, what);
    CHECK(first && !strstr(first + 1, what));
    text_release(&log);
}

TEST(cudnn_is_listed_with_its_version)
{
    struct text is = {0};
    if (GPU_NAME(vendor_attention_library)(&is) == STATUS_UNSUPPORTED) {
        CHECK_MESSAGE("cuDNN");
        skip();
    }
    CHECK(is.len && !strncmp(is.data, "cuDNN 9.", 8));
    text_release(&is);
}
