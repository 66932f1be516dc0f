// SPDX-License-Identifier: Apache-2.0
#include "data/rig.h"

/* Reads batches of B rows until one fails; compares the cursor with the one before that batch.
 * Returns the rows that the batch had got. */
static int check_cursor_after_failure(const char *path, int B, int prefetch_rows)
{
    enum { T = 4, MOST = 5 };
    int32_t room[4][MOST * T];
    struct batch b = {.B = B,
                      .T = T,
                      .ids_BT = room[0],
                      .labels_BT = room[1],
                      .start_BT = room[2],
                      .end_BT = room[3]};
    struct text marked = {0}, kept = {0};
    struct rig r;
    int rows, batches = 0;
    rig_init(&r, "bytes", T);
    r.data.streams = 2;
    r.options.prefetch_rows = prefetch_rows;
    rig_add(&r, path, 1);
    struct loader *l = rig_open(&r);
    do {
        loader_mark(l);
        text_clear(&marked);
        loader_save(l, &(struct json_writer){.text = &marked});
        CHECK(batches++ < 10000);
    } while (!loader_next(l, &b, &rows));
    loader_restore_mark(l);
    loader_save(l, &(struct json_writer){.text = &kept});
    CHECK(batches > 10 && !strcmp(kept.data, marked.data));
    loader_close(l);
    rig_release(&r);
    text_release(&marked), text_release(&kept);
    return rows;
}

TEST(loader_saves_the_cursor_before_a_batch_that_failed)
{
    struct text lines = {0};
    int rows = 0;
    rig_lines(&lines, "good", 40);
    text_adds(&lines, "{\"text\": 7}\n");
    const char *path = rig_text(test_folder(), "a.jsonl", lines.data);
    for (int B = 2; B <= 5; B++)
        for (int ahead = 0; ahead < 2; ahead++)
            rows += check_cursor_after_failure(path, B, ahead * 50);
    CHECK(rows > 0); /* some batches failed after their first row */
    text_release(&lines);
}
