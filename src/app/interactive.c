// SPDX-License-Identifier: Apache-2.0
#include "app/interactive.h"

#include "app/line_editor.h"
#include "app/piped_input.h"
#include "base/color.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/terminal.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char prompt[] = "> ";
static const char help[] =
    "A line is appended to the text, and the model continues it.\n"
    "An empty line lets the model go on; a line that ends in \\ is followed by a\n"
    "line break and another line.\n"
    "/new   begin another text\n"
    "/help  show this\n"
    "/quit  end, as Ctrl-D does\n"
    "//...  text that begins with a slash\n"
    "Ctrl-C stops the model's part, or clears the line.";

enum turn { TURN_text, TURN_new, TURN_help, TURN_quit };

struct dialog {
    struct generation *g;
    struct text_generation text;
    struct line_editor editor;
    bool edits;        /* stdin and stdout are a terminal that knows escape sequences */
    struct text piped; /* read, and not yet typed */
    struct text typed; /* of this turn */
    enum status input; /* of reading it; its message is the last */
};

/* --- reading --- */

static void draw_line(const struct dialog *d)
{
    struct text out = {0};
    struct terminal_size size = terminal_size(STDOUT_FILENO);
    line_editor_draw(&d->editor, prompt, size.columns > 0 ? size.columns : 80, &out);
    fwrite(out.data, 1, out.len, stdout);
    fflush(stdout);
    text_release(&out);
}

/* Waits for a byte.  TERMINAL_NONE: no more bytes of an escape sequence follow, the line must be
 * drawn again, or a signal is pending.  Polls for the signal, which cannot interrupt a wait because
 * this thread blocks it. */
static int wait_for_key(const struct line_editor *e)
{
    const double escape_s = 0.1; /* a sequence's bytes arrive together */
    const double signal_s = 0.2;
    for (;;) {
        int byte = terminal_read_byte(e->num_bytes ? escape_s : signal_s);
        bool has_changed = byte == TERMINAL_NONE && terminal_has_changed();
        if (byte != TERMINAL_NONE || e->num_bytes || has_changed || signals_pending()) return byte;
    }
}

/* Lets the user edit a line; false: the input ends. */
static bool edit_line(struct dialog *d)
{
    for (;;) {
        draw_line(d);
        int byte = wait_for_key(&d->editor);
        if (signals_pending() || byte == TERMINAL_END) {
            printf("\n");
            return false;
        }
        if (byte == TERMINAL_NONE) {
            line_editor_flush(&d->editor);
            continue;
        }
        switch (line_editor_feed(&d->editor, (unsigned char)byte)) {
        case LINE_done: printf("\n"); return true;
        case LINE_end: printf("\n"); return false;
        case LINE_interrupt:
            line_editor_feed(&d->editor, '\5'), line_editor_feed(&d->editor, '\25');
            break;
        case LINE_suspend: terminal_suspend(); break;
        case LINE_more: break;
        }
    }
}

/* Appends the next line of piped input; false: the input ends. */
static bool take_piped_line(struct dialog *d)
{
    struct text *p = &d->piped;
    const char *end;
    for (size_t before = SIZE_MAX; !(end = p->len ? memchr(p->data, '\n', p->len) : NULL);) {
        if (p->len == before) break;
        before = p->len;
        d->input = piped_input_read(p);
        if (d->input || signals_pending()) return false;
    }
    if (!p->len) return false;
    size_t taken = end ? (size_t)(end - p->data) + 1 : p->len, len = taken;
    if (memchr(p->data, 0, taken)) {
        d->input = FAILURE(DATA, "standard input: a line has a NUL byte");
        return false;
    }
    while (len && (p->data[len - 1] == '\n' || p->data[len - 1] == '\r')) len--;
    text_add(&d->typed, p->data, len);
    p->len -= taken;
    memmove(p->data, p->data + taken, p->len);
    return true;
}

/* Appends the next line to d->typed, without its end; false: the input ends. */
static bool read_line(struct dialog *d)
{
    if (!d->edits) return take_piped_line(d);
    if (!edit_line(d)) return false;
    text_add(&d->typed, d->editor.line.data ? d->editor.line.data : "", d->editor.line.len);
    line_editor_next(&d->editor);
    return true;
}

static bool typed_is(const struct dialog *d, const char *word)
{
    return d->typed.len == strlen(word) && !memcmp(d->typed.data, word, d->typed.len);
}

/* Reads a line, and those that a "\\" at its end continues; false: the input ends or fails. */
static bool read_lines(struct dialog *d)
{
    text_clear(&d->typed);
    if (!read_line(d)) return false;
    while (d->typed.len && d->typed.data[d->typed.len - 1] == '\\') {
        d->typed.data[d->typed.len - 1] = '\n';
        if (!read_line(d)) return !d->input;
    }
    return true;
}

/* The user's turn. */
static enum turn read_turn(struct dialog *d)
{
    while (read_lines(d)) {
        if (typed_is(d, "/new")) return TURN_new;
        if (typed_is(d, "/help")) return TURN_help;
        if (typed_is(d, "/quit") || typed_is(d, "/exit")) return TURN_quit;
        if (!d->typed.len || d->typed.data[0] != '/') return TURN_text;
        if (d->typed.len > 1 && d->typed.data[1] == '/') {
            memmove(d->typed.data, d->typed.data + 1, d->typed.len--);
            return TURN_text;
        }
        log_line(LOG_WARN, "unknown command %s; /help lists them", d->typed.data);
    }
    return TURN_quit;
}

/* Rank 0 reads for all ranks. */
static enum status share_turn(struct dialog *d, enum turn *turn)
{
    *turn = generation_is_root(d->g) ? read_turn(d) : TURN_quit;
    TRY(comm_broadcast_bytes(&d->g->loaded.machine.world, 0, turn, sizeof *turn));
    TRY(generation_share_text(d->g, &d->typed));
    return STATUS_OK;
}

/* --- writing --- */

/* Whether Ctrl-C was typed; other keys are fed to the editor, for the user's next line. */
static bool asks_to_end(void *context)
{
    struct dialog *d = context;
    /* Clears the mark, with which terminal_read_byte returns no keys; the next line is drawn in the
     * new size anyway. */
    (void)terminal_has_changed();
    for (int byte; d->edits && (byte = terminal_read_byte(0)) >= 0;) {
        enum line_event event = line_editor_feed(&d->editor, (unsigned char)byte);
        if (event == LINE_interrupt) return true;
        if (event == LINE_suspend) terminal_suspend();
    }
    return false;
}

/* Appends tokens to the text.  When they do not fit, the KV cache begins again with the last half
 * of what fits, after the begin-of-text token. */
static enum status append_tokens(struct dialog *d, const struct token_list *new)
{
    struct generation *g = d->g;
    size_t bos = g->ids.count && g->ids.ids[0] == tokenizer_bos(g->loaded.tokenizer);
    token_list_reserve(&g->ids, new->count);
    memcpy(g->ids.ids + g->ids.count, new->ids, new->count * sizeof *new->ids);
    g->ids.count += new->count;
    if (g->ids.count <= g->max_prompt) {
        TRY(generation_continue(g));
        return STATUS_OK;
    }
    size_t kept = g->max_prompt > 1 ? g->max_prompt / 2 : 1;
    if (bos >= kept) bos = 0;
    log_line(LOG_INFO,
             "the text is longer than the context of %d tokens: the model sees its last %zu",
             g->cache.capacity, kept - bos);
    memmove(g->ids.ids + bos, g->ids.ids + g->ids.count - (kept - bos),
            (kept - bos) * sizeof *g->ids.ids);
    g->ids.count = kept;
    TRY(generation_restart(g));
    return STATUS_OK;
}

/* Appends what was typed; the first part of a text begins with the begin-of-text token. */
static enum status append_typed(struct dialog *d)
{
    struct generation *g = d->g;
    const struct tokenizer *t = g->loaded.tokenizer;
    struct token_list ids = {0};
    enum status st = STATUS_OK;
    if (d->typed.len || !g->ids.count)
        TRY_OUT(text_generation_encode(&g->loaded, d->typed.len ? d->typed.data : "", &ids));
    bool repeats_bos = g->ids.count && ids.count && ids.ids[0] == tokenizer_bos(t);
    struct token_list new = {ids.ids + repeats_bos, ids.count - repeats_bos, 0};
    TRY_OUT(append_tokens(d, &new));
out:
    token_list_release(&ids);
    return st;
}

static enum status take_turns(struct dialog *d)
{
    const struct text_generation none = {0};
    struct generation *g = d->g;
    enum turn turn;
    for (bool ends = false; !ends;) {
        TRY(share_turn(d, &turn));
        if (turn == TURN_quit) return comm_agree(&g->loaded.machine.world, d->input);
        if (turn == TURN_help && generation_is_root(g)) puts(help);
        if (turn == TURN_help) continue;
        if (turn == TURN_new) {
            g->ids.count = 0;
            g->cache.length[0] = 0;
            continue;
        }
        if (append_typed(d)) { /* such as no token at all */
            log_line(LOG_WARN, "%s", status_message());
            continue;
        }
        TRY(text_generation_run(&d->text, g));
        if (generation_is_root(g))
            puts(d->text.finish == TEXT_FINISH_interrupt ? " [stopped]" : "");
        TRY(text_generation_is_interrupted(&none, g, &ends));
    }
    return STATUS_OK;
}

enum status interactive_run(struct generation *g, int context, const char *const *stops,
                            int num_stops)
{
    struct dialog d = {.g = g, .text = {stops, num_stops, true, asks_to_end, NULL}};
    enum status st = STATUS_OK;
    d.text.context = &d;
    if (g->max_tokens > context / 2) g->max_tokens = context / 2;
    g->max_prompt = (size_t)(context - (int)g->max_tokens);
    TRY_OUT(generation_open(g));
    d.edits = generation_is_root(g) && terminal_is(STDIN_FILENO) && terminal_is(STDOUT_FILENO) &&
              !terminal_is_dumb();
    if (d.edits) TRY_OUT(terminal_enter_raw());
    if (d.edits) printf("%d tokens of context; /help lists the commands\n", context);
    TRY_OUT(take_turns(&d));
out:
    if (d.edits) terminal_leave_raw();
    line_editor_release(&d.editor);
    text_generation_release(&d.text);
    text_release(&d.typed);
    text_release(&d.piped);
    return st;
}
