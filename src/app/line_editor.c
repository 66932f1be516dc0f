// SPDX-License-Identifier: Apache-2.0
#include "app/line_editor.h"

#include "runs/printable.h"

#include <stdlib.h>
#include <string.h>

enum {
    CTRL_A = 1,
    CTRL_B = 2,
    CTRL_C = 3,
    CTRL_D = 4,
    CTRL_E = 5,
    CTRL_F = 6,
    CTRL_H = 8,
    CTRL_K = 11,
    CTRL_N = 14,
    CTRL_P = 16,
    CTRL_U = 21,
    CTRL_W = 23,
    CTRL_Z = 26,
    ESCAPE = 27,
    DELETE = 127
};

/* --- positions: the beginnings of characters --- */

static size_t before(const struct line_editor *e, size_t at)
{
    while (at > 0 && ((unsigned char)e->line.data[--at] & 0xC0) == 0x80) continue;
    return at;
}

static size_t after(const struct line_editor *e, size_t at)
{
    if (at < e->line.len) at++;
    while (at < e->line.len && ((unsigned char)e->line.data[at] & 0xC0) == 0x80) at++;
    return at;
}

static size_t word_before(const struct line_editor *e, size_t at)
{
    while (at > 0 && e->line.data[at - 1] == ' ') at--;
    while (at > 0 && e->line.data[at - 1] != ' ') at--;
    return at;
}

/* --- changes --- */

static void erase(struct line_editor *e, size_t from, size_t to)
{
    if (from >= to) return;
    memmove(e->line.data + from, e->line.data + to, e->line.len - to + 1);
    e->line.len -= to - from;
    e->cursor = from;
}

static void insert(struct line_editor *e, const unsigned char *bytes, size_t len)
{
    if (e->line.len + len > LINE_EDITOR_BYTES) return;
    text_add(&e->line, bytes, len); /* makes room */
    memmove(e->line.data + e->cursor + len, e->line.data + e->cursor,
            e->line.len - len - e->cursor);
    memcpy(e->line.data + e->cursor, bytes, len);
    e->cursor += len;
}

static void set_line(struct line_editor *e, const char *line)
{
    text_clear(&e->line);
    text_adds(&e->line, line);
    e->cursor = e->line.len;
}

/* Shows the earlier line `by` lines later; past the last one is the line that was being typed. */
static void show_earlier(struct line_editor *e, int by)
{
    if (by < 0 ? !e->shown : e->shown == e->num_earlier) return;
    if (e->shown == e->num_earlier) {
        free(e->latest);
        e->latest = heap_string(e->line.len ? e->line.data : "", e->line.len);
    }
    e->shown = by < 0 ? e->shown - 1 : e->shown + 1;
    set_line(e, e->shown == e->num_earlier ? e->latest : e->earlier[e->shown]);
}

/* --- keys --- */

static enum line_event control(struct line_editor *e, unsigned char byte)
{
    switch (byte) {
    case '\r':
    case '\n': return LINE_done;
    case CTRL_C: return LINE_interrupt;
    case CTRL_Z: return LINE_suspend;
    case CTRL_A: e->cursor = 0; break;
    case CTRL_E: e->cursor = e->line.len; break;
    case CTRL_B: e->cursor = before(e, e->cursor); break;
    case CTRL_F: e->cursor = after(e, e->cursor); break;
    case CTRL_P: show_earlier(e, -1); break;
    case CTRL_N: show_earlier(e, 1); break;
    case CTRL_U: erase(e, 0, e->cursor); break;
    case CTRL_K: erase(e, e->cursor, e->line.len); break;
    case CTRL_W: erase(e, word_before(e, e->cursor), e->cursor); break;
    case CTRL_H:
    case DELETE: erase(e, before(e, e->cursor), e->cursor); break;
    case CTRL_D:
        if (!e->line.len) return LINE_end;
        erase(e, e->cursor, after(e, e->cursor));
        break;
    default: break; /* other control characters are not text */
    }
    return LINE_more;
}

/* "\033[A", "\033OH", "\033[3~": the sequence is complete. */
static enum line_event act_on_sequence(struct line_editor *e)
{
    unsigned char last = e->sequence[e->num_bytes - 1];
    unsigned char number = last == '~' ? e->sequence[2] : 0;
    e->num_bytes = 0;
    switch (last) {
    case 'A': return control(e, CTRL_P);
    case 'B': return control(e, CTRL_N);
    case 'C': return control(e, CTRL_F);
    case 'D': return control(e, CTRL_B);
    case 'H': return control(e, CTRL_A);
    case 'F': return control(e, CTRL_E);
    default: break;
    }
    if (number == '1' || number == '7') return control(e, CTRL_A);
    if (number == '4' || number == '8') return control(e, CTRL_E);
    if (number == '3') erase(e, e->cursor, after(e, e->cursor));
    return LINE_more;
}

static enum line_event feed_sequence(struct line_editor *e, unsigned char byte)
{
    bool is_introducer = e->num_bytes == 1 && (byte == '[' || byte == 'O');
    if (e->num_bytes == 1 && !is_introducer) { /* Escape and a key: the key alone */
        e->num_bytes = 0;
        return line_editor_feed(e, byte);
    }
    if (e->num_bytes < sizeof e->sequence) e->sequence[e->num_bytes++] = byte;
    if (is_introducer) return LINE_more;
    if (byte >= 0x40 && byte <= 0x7E) {
        if (e->num_bytes == sizeof e->sequence) e->sequence[2] = 0; /* longer than any of ours */
        return act_on_sequence(e);
    }
    return LINE_more;
}

/* Bytes of a character that begins with this one. */
static size_t character_bytes(unsigned char first)
{
    return first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 1;
}

/* Bytes of a character arrive one by one; those that are not UTF-8 are dropped. */
static enum line_event feed_character(struct line_editor *e, unsigned char byte)
{
    if (e->num_bytes && (byte & 0xC0) != 0x80) e->num_bytes = 0;
    e->sequence[e->num_bytes++] = byte;
    if (e->num_bytes < character_bytes(e->sequence[0])) return LINE_more;
    if (text_is_utf8((const char *)e->sequence, e->num_bytes)) insert(e, e->sequence, e->num_bytes);
    e->num_bytes = 0;
    return LINE_more;
}

enum line_event line_editor_feed(struct line_editor *e, unsigned char byte)
{
    if (e->num_bytes && e->sequence[0] == ESCAPE) return feed_sequence(e, byte);
    if (byte == ESCAPE) {
        e->sequence[0] = byte, e->num_bytes = 1;
        return LINE_more;
    }
    if (byte < ' ' || byte == DELETE) {
        e->num_bytes = 0;
        return control(e, byte);
    }
    return feed_character(e, byte);
}

void line_editor_flush(struct line_editor *e)
{
    if (e->num_bytes == 1 && e->sequence[0] == ESCAPE) e->num_bytes = 0;
}

void line_editor_next(struct line_editor *e)
{
    const char *line = e->line.len ? e->line.data : "";
    bool repeats = e->num_earlier && !strcmp(e->earlier[e->num_earlier - 1], line);
    if (*line && !repeats) {
        if (e->num_earlier == LINE_EDITOR_LINES) {
            free(e->earlier[0]);
            memmove(e->earlier, e->earlier + 1, (LINE_EDITOR_LINES - 1) * sizeof *e->earlier);
            e->num_earlier--;
        }
        e->earlier[e->num_earlier++] = heap_strdup(line);
    }
    e->shown = e->num_earlier;
    set_line(e, "");
}

/* --- drawing --- */

/* Columns of the bytes [from, to), which are whole characters. */
static int columns_of(const struct line_editor *e, size_t from, size_t to)
{
    int sum = 0;
    while (from < to) {
        int columns;
        from += printable_character(e->line.data + from, &columns);
        sum += columns;
    }
    return sum;
}

void line_editor_draw(const struct line_editor *e, const char *prompt, int columns,
                      struct text *out)
{
    int width = (int)printable_width(prompt), room = columns - width - 1, used = 0;
    int cursor = columns_of(e, 0, e->cursor);
    size_t from = 0, to, next;
    if (room < 2) room = 2;
    for (; cursor > room; from = next) {
        next = after(e, from);
        cursor -= columns_of(e, from, next);
    }
    for (to = from; to < e->line.len; to = next) {
        next = after(e, to);
        used += columns_of(e, to, next);
        if (used > room) break;
    }
    text_addf(out, "\r%s", prompt);
    if (to > from) text_add(out, e->line.data + from, to - from);
    text_adds(out, "\033[K\r");
    if (width + cursor) text_addf(out, "\033[%dC", width + cursor);
}

void line_editor_release(struct line_editor *e)
{
    for (size_t i = 0; i < e->num_earlier; i++) free(e->earlier[i]);
    free(e->latest);
    text_release(&e->line);
    *e = (struct line_editor){0};
}
