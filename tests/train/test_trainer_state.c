// SPDX-License-Identifier: Apache-2.0
#include "train/trainer_state.h"

#include "train/training.h"

TEST(counters_are_restored)
{
    struct training t;
    struct text text = {0};
    struct json *json;
    TRAINING_OPEN(&t, "debug.seed=1");
    t.trainer.steps_done = 9, t.trainer.rows_done = 40;
    t.trainer.tokens_seen = 12345, t.trainer.skips = 2;
    struct json_writer w = {.text = &text};
    json_begin_object(&w, NULL, JSON_INLINE);
    trainer_state_save(&t.trainer, &w);
    json_end_object(&w);
    json_finish(&w);
    CHECK(!strcmp(text.data, "{\"tokens_seen\": 12345, \"rows_done\": 40, \"skips\": 2}"));
    t.trainer.tokens_seen = t.trainer.skips = t.trainer.rows_done = 0;
    CHECK_STATUS(OK, json_parse(text.data, text.len, "state", &json));
    CHECK_STATUS(OK, trainer_state_load(&t.trainer, json));
    CHECK(t.trainer.tokens_seen == 12345 && t.trainer.skips == 2 && t.trainer.rows_done == 40);
    json_free(json);
    CHECK_STATUS(OK, json_parse("{\"skips\": 2}", 12, "state", &json));
    CHECK_STATUS(DATA, trainer_state_load(&t.trainer, json));
    CHECK_MESSAGE("tokens_seen");
    json_free(json);
    text_release(&text);
    training_close(&t);
}
