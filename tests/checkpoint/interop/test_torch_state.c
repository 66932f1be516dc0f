// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/torch_state.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/pickle_write.h"
#include "formats/torch_writer.h"
#include "test.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

/* Writes an archive of one unnamed tensor, or of a pickle, and reads it into the state. */
static enum status read_entry(struct torch_state *s, const char *name,
                              const struct torch_tensor *tensor, const void *numbers,
                              const struct text *pickle)
{
    const char *path = test_path(test_folder(), "item");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    struct torch_writer w;
    struct text bytes = {0};
    uint64_t size, count = 1;
    CHECK_STATUS(OK, tensor ? torch_writer_open(&w, fd, path, 0, tensor, 1)
                            : torch_writer_open_pickle(&w, fd, path, 0, pickle));
    for (int d = 0; tensor && d < tensor->num_dims; d++) count *= (uint64_t)tensor->shape[d];
    if (tensor)
        CHECK_STATUS(OK,
                     torch_writer_put(&w, numbers, count * safetensors_dtype_bytes(tensor->dtype)));
    CHECK_STATUS(OK, torch_writer_close(&w, &size));
    torch_writer_release(&w);
    close(fd);
    CHECK_STATUS(OK, file_read(path, 1 << 20, &bytes));
    enum status st = torch_state_read(s, name, (unsigned char *)bytes.data, bytes.len);
    text_release(&bytes);
    return st;
}

static enum status read_scalar(struct torch_state *s, const char *name,
                               enum safetensors_dtype dtype, const void *number)
{
    char nameless[] = "";
    const struct torch_tensor t = {.name = nameless, .dtype = dtype};
    return read_entry(s, name, &t, number, NULL);
}

static enum status read_python_int(struct torch_state *s, const char *name, int64_t value)
{
    struct text t = {0};
    pickle_write_proto(&t), pickle_write_int(&t, value), pickle_write_stop(&t);
    enum status st = read_entry(s, name, NULL, NULL, &t);
    text_release(&t);
    return st;
}

static enum status read_python_string(struct torch_state *s, const char *name, const char *value)
{
    struct text t = {0};
    pickle_write_proto(&t), pickle_write_string(&t, value), pickle_write_stop(&t);
    enum status st = read_entry(s, name, NULL, NULL, &t);
    text_release(&t);
    return st;
}

#define ADAM "optimizer.state.layers.0.attention.wq.weight.step"

TEST(counters_are_read_from_tensors_and_python_numbers)
{
    const int32_t small = 7;
    const int64_t large = INT64_C(1) << 40;
    const float real = 7;
    struct torch_state s;
    struct text json = {0};
    torch_state_init(&s);
    CHECK(torch_state_handles("train_state.step") && torch_state_handles(ADAM));
    CHECK(torch_state_handles("llamero.train") && !torch_state_handles("dataloader.dp_rank_0"));
    CHECK(!torch_state_handles("optimizer.state.step") &&
          !torch_state_handles("lr_scheduler.step"));
    CHECK_STATUS(OK, read_scalar(&s, "train_state.step", SAFETENSORS_I32, &small));
    CHECK_STATUS(OK, read_scalar(&s, "train_state.ntokens_seen", SAFETENSORS_I64, &large));
    CHECK_STATUS(OK, read_scalar(&s, ADAM, SAFETENSORS_F32, &real));
    CHECK_STATUS(OK, read_python_int(&s, "lr_scheduler.last_epoch", 7));
    CHECK(s.step == 7 && s.tokens_seen == large && s.optimizer_step == 7 && s.schedule_step == 7);
    CHECK_STATUS(OK, torch_state_finish(&s, "here"));
    torch_state_json(&s, &json);
    CHECK(!strcmp(json.data, "{\"format\": 1, \"step\": 7, \"train\": {\"tokens_seen\": "
                             "1099511627776, \"skips\": 0, \"data\": null}}\n"));
    text_release(&json);
    torch_state_release(&s);
}

TEST(optimizer_that_counts_other_steps_keeps_its_count)
{
    const int32_t seven = 7;
    const float five = 5;
    struct torch_state s;
    struct text json = {0};
    torch_state_init(&s);
    CHECK_STATUS(OK, read_scalar(&s, "train_state.step", SAFETENSORS_I32, &seven));
    CHECK_STATUS(OK, read_scalar(&s, ADAM, SAFETENSORS_F32, &five));
    CHECK_STATUS(OK, torch_state_finish(&s, "here"));
    torch_state_train(&s, &json);
    CHECK(strstr(json.data, "\"moment_steps\": 5"));
    text_release(&json);
    torch_state_release(&s);
}

TEST(step_falls_back_to_the_lr_schedulers_then_the_optimizers)
{
    const float two = 2;
    struct torch_state s;
    torch_state_init(&s);
    CHECK_STATUS(DATA, torch_state_finish(&s, "here"));
    CHECK_MESSAGE("neither train_state.step");
    CHECK_STATUS(OK, read_scalar(&s, ADAM, SAFETENSORS_F32, &two));
    CHECK_STATUS(OK, torch_state_finish(&s, "here"));
    CHECK(s.step == 2);
    torch_state_init(&s);
    CHECK_STATUS(OK, read_scalar(&s, ADAM, SAFETENSORS_F32, &two));
    CHECK_STATUS(OK, read_python_int(&s, "lr_scheduler.last_epoch", 3));
    CHECK_STATUS(OK, torch_state_finish(&s, "here"));
    CHECK(s.step == 3);
    CHECK_STATUS(OK, read_python_int(&s, "optimizer.state.norm.weight.step", 3));
    CHECK_STATUS(UNSUPPORTED, torch_state_finish(&s, "here"));
    CHECK_MESSAGE("updated 3 times and others 2 times");
}

TEST(skipped_entries_are_noted)
{
    struct torch_state s;
    torch_state_init(&s);
    torch_state_note(&s, "optimizer.state.layers.0.attention.wq.weight.exp_avg");
    torch_state_note(&s, "optimizer.param_groups.norm.weight.lr");
    torch_state_note(&s, "optimizer.state.norm.weight.step");
    CHECK(!s.has_data && !s.has_losses && !s.other_moment[0]);
    CHECK_STATUS(OK, torch_state_check_moments(&s, "here"));
    torch_state_note(&s, "optimizer.state.0.exp_avg");
    CHECK(s.other_moment[0] && !s.has_data);
    CHECK_STATUS(UNSUPPORTED, torch_state_check_moments(&s, "here"));
    CHECK_MESSAGE("here: optimizer.state.0.exp_avg does not belong to AdamW of a Llama");
    torch_state_init(&s);
    torch_state_note(&s, "optimizer.state.layers.0.attention.wq.weight.momentum_buffer");
    CHECK(s.other_moment[0]);
    torch_state_note(&s, "dataloader.dp_rank_0");
    torch_state_note(&s, "train_state.global_avg_losses");
    CHECK(s.has_data && s.has_losses);
}

TEST(invalid_counters_are_rejected)
{
    const float bad[] = {-1, 0.5f, NAN, INFINITY, 1e30f};
    const int64_t negative = -1, huge = INT64_MAX;
    const double two[] = {1, 2};
    char nameless[] = "";
    const struct torch_tensor pair = {
        .name = nameless, .dtype = SAFETENSORS_I64, .num_dims = 1, .shape = {2}};
    struct torch_state s;
    torch_state_init(&s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(DATA, read_scalar(&s, "train_state.step", SAFETENSORS_F32, &bad[i]));
    CHECK_STATUS(DATA, read_scalar(&s, "train_state.step", SAFETENSORS_I64, &negative));
    CHECK_STATUS(DATA, read_scalar(&s, "train_state.step", SAFETENSORS_I64, &huge));
    CHECK_STATUS(DATA, read_python_int(&s, "train_state.step", -3));
    CHECK_STATUS(DATA, read_entry(&s, "train_state.step", &pair, two, NULL));
    CHECK_STATUS(DATA, read_python_string(&s, "train_state.step", "7"));
    CHECK_MESSAGE("train_state.step: expected a non-negative integer");
    CHECK_STATUS(DATA, torch_state_read(&s, "train_state.step", (const unsigned char *)"x", 1));
    CHECK(s.step == -1);
}

TEST(samples_that_megatron_consumed_are_rows_and_a_data_position)
{
    struct torch_state s;
    struct text json = {0};
    torch_state_init(&s);
    s.samples = 12;
    torch_state_train(&s, &json);
    CHECK(strstr(json.data, "\"rows_done\": 12"));
    CHECK(strstr(json.data, "\"data\": {\"consumed_train_samples\": 12}"));
    text_clear(&json);
    text_adds(&s.order_args, "{\"seed\": 5}");
    torch_state_train(&s, &json);
    CHECK(strstr(json.data, "{\"consumed_train_samples\": 12, \"args\": {\"seed\": 5}}"));
    text_release(&json);
    torch_state_release(&s);
}

TEST(trainer_json_round_trips_and_must_be_an_object)
{
    static const char train[] = "{\"tokens_seen\": 5,  \"data\": {\"a\": [1, 2.50]}}";
    struct torch_state s;
    struct text json = {0};
    torch_state_init(&s);
    CHECK_STATUS(OK, read_python_string(&s, "llamero.train", train));
    torch_state_train(&s, &json);
    CHECK(!strcmp(json.data, train));
    CHECK_STATUS(DATA, read_python_string(&s, "llamero.train", "[1]"));
    CHECK_MESSAGE("llamero.train: expected a JSON object");
    CHECK_STATUS(DATA, read_python_string(&s, "llamero.train", "{\"a\": 1}}, \"step\": {"));
    CHECK_STATUS(DATA, read_python_int(&s, "llamero.train", 4));
    text_release(&json);
    torch_state_release(&s);
}

TEST(log_says_whether_moments_are_loaded)
{
    const char *path = test_path(test_folder(), "log.txt");
    struct torch_state s;
    struct text log = {0};
    torch_state_init(&s);
    s.step = 7;
    CHECK_STATUS(OK, log_open(path));
    torch_state_log(&s, "with", true);
    torch_state_log(&s, "without", false);
    CHECK_STATUS(OK, log_open(NULL));
    CHECK_STATUS(OK, file_read(path, 1 << 20, &log));
    CHECK(strstr(log.data, "with: loaded the optimizer's moments of step 7; not loaded: "));
    CHECK(strstr(log.data, "without: loaded step 7 without the optimizer's moments; not loaded: "));
    text_release(&log);
    torch_state_release(&s);
}
