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
    t.trainer.tokens_seen = 12345, t.trainer.skips = 2, t.trainer.moments_begin = -3;
    struct json_writer w = {.text = &text};
    json_begin_object(&w, NULL, JSON_INLINE);
    trainer_state_save(&t.trainer, &w);
    json_end_object(&w);
    json_finish(&w);
    CHECK(
        !strcmp(text.data,
                "{\"tokens_seen\": 12345, \"rows_done\": 40, \"full_step_rows\": 2, \"skips\": 2, "
                "\"moment_steps\": 12}"));
    t.trainer.tokens_seen = t.trainer.skips = t.trainer.rows_done = t.trainer.moments_begin = 0;
    CHECK_STATUS(OK, json_parse(text.data, text.len, "state", &json));
    CHECK_STATUS(OK, trainer_state_load(&t.trainer, json, true));
    CHECK(t.trainer.tokens_seen == 12345 && t.trainer.skips == 2 && t.trainer.rows_done == 40);
    CHECK(t.trainer.moments_begin == -3);
    json_free(json);
    CHECK_STATUS(OK, json_parse("{\"skips\": 2}", 12, "state", &json));
    CHECK_STATUS(DATA, trainer_state_load(&t.trainer, json, true));
    CHECK_MESSAGE("tokens_seen");
    json_free(json);
    text_release(&text);
    training_close(&t);
}

TEST(state_of_another_optimizer_is_refused)
{
    struct training adamw, muon;
    struct text text = {0};
    struct json *state, *none;
    TRAINING_OPEN(&adamw, "debug.seed=1");
    TRAINING_OPEN(&muon, "optimizer.name=Muon");
    struct json_writer w = {.text = &text};
    json_begin_object(&w, NULL, JSON_INLINE);
    trainer_state_save(&muon.trainer, &w);
    json_end_object(&w);
    json_finish(&w);
    CHECK_STATUS(OK, json_parse(text.data, text.len, "state", &state));
    CHECK_STATUS(OK, trainer_state_load(&muon.trainer, state, true));
    CHECK_STATUS(CONFIG, trainer_state_load(&adamw.trainer, state, true));
    CHECK_MESSAGE("optimizer.name = \"AdamW\": the checkpoint has the state of Muon");
    static const char old[] = "{\"tokens_seen\": 1, \"skips\": 0}";
    CHECK_STATUS(OK, json_parse(old, sizeof old - 1, "state", &none));
    CHECK_STATUS(OK, trainer_state_load(&adamw.trainer, none, true));
    CHECK_STATUS(CONFIG, trainer_state_load(&muon.trainer, none, true));
    CHECK_MESSAGE("optimizer.name = \"Muon\": the checkpoint has the state of AdamW");
    json_free(none);
    CHECK_STATUS(OK, json_parse("{\"optimizer\": 1}", 16, "state", &none));
    CHECK_STATUS(DATA, trainer_state_load(&muon.trainer, none, true));
    json_free(state), json_free(none);
    text_release(&text);
    training_close(&adamw), training_close(&muon);
}
