// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_format.h"

#include "tasks/task_text.h"
#include "tokenizer/text/letter_case.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CHOICES = 1000 };

void task_format_release_question(struct task_question *q)
{
    for (int i = 0; i < q->capacity; i++) {
        text_release(&q->choices[i].context);
        text_release(&q->choices[i].continuation);
    }
    free(q->choices);
    *q = (struct task_question){0};
}

static enum status set_num_choices(struct task_question *q, size_t count)
{
    if (!count || count > MAX_CHOICES)
        FAIL(DATA, "expected 1 to %d choices, found %zu", MAX_CHOICES, count);
    int n = (int)count;
    if (n > q->capacity) {
        q->choices = heap_grow(q->choices, count, sizeof *q->choices);
        memset(q->choices + q->capacity, 0, (count - (size_t)q->capacity) * sizeof *q->choices);
        q->capacity = n;
    }
    q->num_choices = n;
    for (int i = 0; i < n; i++) {
        struct task_choice *c = &q->choices[i];
        text_clear(&c->context), text_clear(&c->continuation);
        text_adds(&c->context, ""), text_adds(&c->continuation, "");
        c->length = 0;
    }
    return STATUS_OK;
}

/* lm-eval's delimiter between a context and an answer is a space. */
static void set_answer(struct task_choice *c, const char *context, const char *answer)
{
    text_adds(&c->context, context);
    text_adds(&c->continuation, " ");
    text_adds(&c->continuation, answer);
    c->length = task_text_length(answer);
}

static enum status get_strings(const struct json *list, const char *key, size_t *count)
{
    *count = json_count(list);
    for (const struct json *v = json_first(list); v; v = json_next(v))
        if (!json_is_string(v)) FAIL(DATA, "\"%s\": expected a list of strings", key);
    if (!json_is_array(list)) FAIL(DATA, "\"%s\": expected a list of strings", key);
    return STATUS_OK;
}

/* The correct choice: a number, also as a string, counted from `first`. */
static enum status get_gold(const struct json *row, const char *key, int64_t first,
                            struct task_question *q)
{
    const struct json *v = json_get(row, key);
    int64_t number = -1;
    if (json_is_string(v)) {
        const char *digits = json_string(v);
        size_t len = strlen(digits);
        if (!len)
            FAIL(DATA, "\"%s\" is empty: expected a split with answers, such as validation", key);
        if (len < 9 && strspn(digits, "0123456789") == len) number = strtol(digits, NULL, 10);
    } else if (!json_as_int(v, 0, INT32_MAX, &number)) {
        number = -1;
    }
    number -= first;
    if (number < 0 || number >= q->num_choices)
        FAIL(DATA, "\"%s\": expected the number of the correct choice, from %lld to %lld", key,
             (long long)first, (long long)first + q->num_choices - 1);
    q->gold = (int)number;
    return STATUS_OK;
}

/* Multiple choice: every string of the list answers the same context. */
static enum status set_answers(struct task_question *q, const char *context,
                               const struct json *list, const char *key)
{
    size_t count;
    int i = 0;
    TRY(get_strings(list, key, &count));
    TRY(set_num_choices(q, count));
    for (const struct json *v = json_first(list); v; v = json_next(v))
        set_answer(&q->choices[i++], context, json_string(v));
    return STATUS_OK;
}

static void add_question(struct text *prompt, const char *question)
{
    text_addf(prompt, "Question: %s\nAnswer:", question);
}

static enum status read_arc(const struct json *row, struct task_question *q)
{
    const char *question, *key;
    const struct json *choices = json_get(row, "choices"), *labels = json_get(choices, "label");
    size_t count;
    struct text prompt = {0};
    TRY(json_get_string(row, "question", &question));
    TRY(json_get_string(row, "answerKey", &key));
    TRY(get_strings(labels, "choices.label", &count));
    add_question(&prompt, question);
    enum status st = set_answers(q, prompt.data, json_get(choices, "text"), "choices.text");
    text_release(&prompt);
    TRY(st);
    q->gold = 0;
    for (const struct json *v = json_first(labels); v && !json_string_is(v, key); v = json_next(v))
        q->gold++;
    if (q->gold >= q->num_choices)
        FAIL(DATA, "\"answerKey\": \"%s\": expected one of \"choices.label\"", key);
    return STATUS_OK;
}

/* HellaSwag's WikiHow part marks titles and other places with brackets. */
static void clean_hellaswag(struct text *out, const char *string)
{
    text_clear(out);
    task_text_add_stripped(out, string);
    task_text_replace(out, " [title]", ". ");
    task_text_remove_brackets(out);
    task_text_replace(out, "  ", " ");
}

static enum status read_hellaswag(const struct json *row, struct task_question *q)
{
    const char *label, *a, *b;
    struct text raw = {0}, context = {0}, ending = {0};
    enum status st = STATUS_OK;
    size_t count;
    int i = 0;
    const struct json *endings = json_get(row, "endings");
    TRY(json_get_string(row, "activity_label", &label));
    TRY(json_get_string(row, "ctx_a", &a));
    TRY(json_get_string(row, "ctx_b", &b));
    TRY(get_strings(endings, "endings", &count));
    TRY(set_num_choices(q, count));
    text_addf(&raw, "%s: %s ", label, a);
    letter_case_capitalize(b, strlen(b), &raw);
    clean_hellaswag(&context, raw.data);
    for (const struct json *v = json_first(endings); v; v = json_next(v)) {
        clean_hellaswag(&ending, json_string(v));
        set_answer(&q->choices[i++], context.len ? context.data : "",
                   ending.len ? ending.data : "");
    }
    TRY_OUT(get_gold(row, "label", 0, q));
out:
    text_release(&raw), text_release(&context), text_release(&ending);
    return st;
}

static enum status read_piqa(const struct json *row, struct task_question *q)
{
    const char *goal, *answers[2];
    struct text prompt = {0};
    TRY(json_get_string(row, "goal", &goal));
    TRY(json_get_string(row, "sol1", &answers[0]));
    TRY(json_get_string(row, "sol2", &answers[1]));
    TRY(set_num_choices(q, 2));
    add_question(&prompt, goal);
    for (int i = 0; i < 2; i++) set_answer(&q->choices[i], prompt.data, answers[i]);
    text_release(&prompt);
    TRY(get_gold(row, "label", 0, q));
    return STATUS_OK;
}

/* Partial evaluation: the end of the sentence after each option in place of the blank. */
static enum status read_winogrande(const struct json *row, struct task_question *q)
{
    const char *sentence, *options[2];
    TRY(json_get_string(row, "sentence", &sentence));
    TRY(json_get_string(row, "option1", &options[0]));
    TRY(json_get_string(row, "option2", &options[1]));
    const char *blank = strchr(sentence, '_');
    if (!blank) FAIL(DATA, "\"sentence\": expected a blank, \"_\"");
    TRY(set_num_choices(q, 2));
    for (int i = 0; i < 2; i++) {
        struct task_choice *c = &q->choices[i];
        text_add(&c->context, sentence, (size_t)(blank - sentence));
        text_adds(&c->context, options[i]);
        text_adds(&c->continuation, " ");
        task_text_add_stripped(&c->continuation, blank + 1);
        c->length = task_text_length(c->context.data);
    }
    TRY(get_gold(row, "answer", 1, q));
    return STATUS_OK;
}

/* The letter or number of the correct choice. */
static enum status get_letter(const struct json *row, const char *letters, struct task_question *q)
{
    const struct json *v = json_get(row, "answer");
    const char *word = json_is_string(v) ? json_string(v) : "";
    const char *found = word[0] && !word[1] ? strchr(letters, word[0]) : NULL;
    if (!found) return get_gold(row, "answer", 0, q);
    q->gold = (int)(found - letters);
    return STATUS_OK;
}

static enum status read_mmlu(const struct json *row, struct task_question *q)
{
    static const char letters[] = "ABCD";
    const char *question, *subject = NULL;
    const struct json *choices = json_get(row, "choices");
    struct text prompt = {0};
    size_t count;
    TRY(json_get_string(row, "question", &question));
    TRY(json_get_string(row, "subject", &subject));
    TRY(get_strings(choices, "choices", &count));
    if (count != 4) FAIL(DATA, "\"choices\": expected 4, found %zu", count);
    TRY(set_num_choices(q, count));
    text_adds(&prompt, "The following are multiple choice questions (with answers) about ");
    for (const char *c = subject; *c; c++) text_add(&prompt, *c == '_' ? " " : c, 1);
    text_adds(&prompt, ".\n\n");
    task_text_add_stripped(&prompt, question);
    const char *letter = letters;
    for (const struct json *v = json_first(choices); v; v = json_next(v))
        text_addf(&prompt, "\n%c. %s", *letter++, json_string(v));
    text_adds(&prompt, "\nAnswer:");
    for (int i = 0; i < 4; i++)
        set_answer(&q->choices[i], prompt.data, (const char[]){letters[i], 0});
    text_release(&prompt);
    TRY(get_letter(row, letters, q));
    return STATUS_OK;
}

/* The last word, after a space, continues the text before it. */
static enum status read_lambada(const struct json *row, struct task_question *q)
{
    const char *text;
    TRY(json_get_string(row, "text", &text));
    TRY(set_num_choices(q, 1));
    const char *space = strrchr(text, ' ');
    struct task_choice *c = &q->choices[0];
    if (space) text_add(&c->context, text, (size_t)(space - text));
    text_adds(&c->continuation, " ");
    text_adds(&c->continuation, space ? space + 1 : text);
    c->length = task_text_length(c->continuation.data);
    q->gold = 0;
    return STATUS_OK;
}

const struct task_format task_formats[] = {
    {"arc", TASK_ACC | TASK_ACC_NORM, {"question", "choices", "answerKey"}, read_arc},
    {"hellaswag",
     TASK_ACC | TASK_ACC_NORM,
     {"activity_label", "ctx_a", "ctx_b", "endings", "label"},
     read_hellaswag},
    {"piqa", TASK_ACC | TASK_ACC_NORM, {"goal", "sol1", "sol2"}, read_piqa},
    {"winogrande", TASK_ACC, {"sentence", "option1", "option2", "answer"}, read_winogrande},
    {"mmlu", TASK_ACC, {"question", "subject", "choices", "answer"}, read_mmlu},
    {"lambada", TASK_ACC | TASK_GREEDY | TASK_PERPLEXITY, {"text"}, read_lambada},
};
enum { NUM_FORMATS = sizeof task_formats / sizeof *task_formats };

static bool has_columns(const struct json *row, const struct task_format *f)
{
    for (size_t i = 0; i < sizeof f->columns / sizeof *f->columns && f->columns[i]; i++)
        if (!json_get(row, f->columns[i])) return false;
    return true;
}

const struct task_format *task_format_detect(const struct json *row)
{
    for (int i = 0; i < NUM_FORMATS; i++)
        if (has_columns(row, &task_formats[i])) return &task_formats[i];
    return NULL;
}
