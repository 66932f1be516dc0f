/* task.c -- any bytes as the lines of an evaluation data set must give questions or a clean error.
 */
// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_format.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void check_question(const struct task_question *q)
{
    BUG_IF(q->num_choices < 1 || q->gold < 0 || q->gold >= q->num_choices);
    for (int i = 0; i < q->num_choices; i++) {
        const struct text *texts[] = {&q->choices[i].context, &q->choices[i].continuation};
        for (int n = 0; n < 2; n++) {
            const char *data = texts[n]->data;
            bool has_nul = strstr(data, "\xC0\x80"); /* U+0000: json.h */
            BUG_IF(texts[n]->len != strlen(data));
            BUG_IF(!has_nul && !text_is_utf8(data, texts[n]->len));
        }
        BUG_IF(texts[1]->data[0] != ' ' || q->choices[i].length < 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct task_question q = {0};
    const char *line = (const char *)bytes, *end = line + len;
    while (line < end) { /* several, since a question reuses memory */
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t size = (size_t)((stop ? stop : end) - line);
        struct json *row = NULL;
        const struct task_format *f = NULL;
        if (!json_parse(line, size, "fuzz", &row)) f = task_format_detect(row);
        if (f && !f->read(row, &q)) check_question(&q);
        json_free(row);
        line += size + 1;
    }
    task_format_release_question(&q);
    return 0;
}
