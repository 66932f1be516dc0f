// SPDX-License-Identifier: Apache-2.0
#include "data/prepare_output.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/counted.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "formats/megatron.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { JOURNAL_SECONDS = 5, MAX_JOURNAL_BYTES = 64 << 20 };

static char *with_suffix(const char *prefix, const char *suffix)
{
    struct text t = {0};
    text_addf(&t, "%s%s", prefix, suffix);
    return t.data;
}

/* The checksums of the first `bytes` of PREFIX.bin.part. */
static enum status sum_written(const struct prepare_output *o, uint64_t bytes,
                               struct megatron_sum *sum)
{
    enum { READ_BYTES = 1 << 20 };
    void *buffer = heap(READ_BYTES);
    enum status st = STATUS_OK;
    while (!st && sum->bytes < bytes) {
        size_t n = bytes - sum->bytes < READ_BYTES ? (size_t)(bytes - sum->bytes) : READ_BYTES;
        st = file_read_at(o->bin_fd, o->bin_part, buffer, n, sum->bytes);
        if (!st) megatron_sum_add(sum, buffer, n);
    }
    free(buffer);
    return st;
}

/* CONFIG: the files or the tokenizer are not those of the journal, which the caller must accept or
 * start over. */
static enum status check_provenance(struct prepare_output *o, const struct json *journal)
{
    const struct provenance_rules rules = {.accepted = o->accept_changed,
                                           .is_fixed = true,
                                           .saved_in = o->journal,
                                           .accept_begin = "--accept-changed ",
                                           .accept_next = " --accept-changed ",
                                           .accept_end = "",
                                           .restart = "--force starts over"};
    struct provenance_match *matches = heap(o->num_sources * sizeof *matches);
    enum status st = provenance_check(o->provenance, journal, &rules, matches);
    free(matches);
    return st;
}

static enum status find(const char *path, bool *exists)
{
    enum file_kind kind;
    TRY(file_find(path, &kind));
    *exists = kind != FILE_ABSENT;
    return STATUS_OK;
}

/* Restores the progress of an earlier run; without a valid journal everything stays zero.  CONFIG:
 * as check_provenance.  IO. */
static enum status read_journal(struct prepare_output *o)
{
    struct json *j = NULL;
    int64_t settings, source, position, documents, tokens, text, records, bad, bad_bytes;
    int64_t lengths_crc, digest;
    uint64_t idx_bytes, each = (uint64_t)o->done.token_bytes;
    struct megatron_sum sum = {0};
    enum status st = STATUS_OK;
    bool exists = false;
    if (!o->force) TRY(find(o->journal, &exists));
    if (!exists) return STATUS_OK;
    TRY_OUT(json_read(o->journal, MAX_JOURNAL_BYTES, &j));
    TRY_OUT(json_get_int(j, "settings", 0, UINT32_MAX, &settings));
    if (settings != o->settings) FAIL_OUT(DATA, "was written with other settings");
    TRY_OUT(check_provenance(o, j));
    TRY_OUT(json_get_int(j, "source", 0, (int64_t)o->num_sources, &source));
    TRY_OUT(json_get_int(j, "place", 0, JSON_MAX_INT, &position));
    TRY_OUT(json_get_int(j, "documents", 0, JSON_MAX_INT, &documents));
    TRY_OUT(json_get_int(j, "tokens", 0, JSON_MAX_INT, &tokens));
    TRY_OUT(json_get_int(j, "text_bytes", 0, JSON_MAX_INT, &text));
    TRY_OUT(json_get_int(j, "records", 0, JSON_MAX_INT, &records));
    TRY_OUT(json_get_int(j, "bad_records", 0, records, &bad));
    TRY_OUT(json_get_int(j, "bad_bytes", 0, JSON_MAX_INT, &bad_bytes));
    TRY_OUT(json_get_int(j, "lengths_crc32c", 0, UINT32_MAX, &lengths_crc));
    TRY_OUT(json_get_int(j, "sums_crc32c", 0, UINT32_MAX, &digest));
    TRY_OUT(file_size(o->idx_part, &idx_bytes));
    if (idx_bytes < (uint64_t)documents * sizeof(int32_t))
        FAIL_OUT(DATA, "%s is shorter than it records", o->idx_part);
    TRY_OUT(sum_written(o, (uint64_t)tokens * each, &sum));
    if (megatron_sum_digest(&sum) != digest)
        FAIL_OUT(DATA, "%s has changed: checksum mismatch", o->bin_part);
    o->source = (size_t)source, o->position = (uint64_t)position;
    o->done.documents = (uint64_t)documents, o->done.tokens = (uint64_t)tokens;
    o->done.text_bytes = o->done.text_resumed = (uint64_t)text;
    o->done.records = (uint64_t)records, o->done.bad_records = (uint64_t)bad;
    o->bad_bytes = (uint64_t)bad_bytes, o->lengths_crc = (uint32_t)lengths_crc;
    o->bin_sum = sum, sum = (struct megatron_sum){0};
    log_line(LOG_INFO, "resuming after %s recorded in %s",
             counted_format(documents, "document").text, o->journal);
out:
    megatron_sum_release(&sum);
    json_free(j);
    if (st != STATUS_DATA) return st;
    log_line(LOG_WARN, "%s: %s; starting over", o->journal, status_message());
    return STATUS_OK;
}

static enum status check_no_output(const struct prepare_output *o)
{
    bool has_idx, has_bin, has_journal;
    TRY(find(o->idx, &has_idx));
    TRY(find(o->bin, &has_bin));
    TRY(find(o->journal, &has_journal));
    bool is_complete = has_idx || (has_bin && !has_journal);
    if (is_complete && !o->force)
        FAIL(CONFIG, "%s already exists; use --force to overwrite it", has_idx ? o->idx : o->bin);
    return STATUS_OK;
}

/* Whether a run was killed while it published: without the journal its .bin would seem complete. */
static bool is_half_published(const struct prepare_output *o)
{
    return file_exists(o->bin) && !file_exists(o->idx);
}

/* Deletes files that only an unfinished run needs. */
static void remove_work_files(const struct prepare_output *o, bool keeps_journal)
{
    const char *const paths[] = {o->idx_part, o->journal};
    for (int i = 0; i < 2 - keeps_journal; i++)
        if (unlink(paths[i]) && errno != ENOENT)
            log_line(LOG_WARN, "cannot delete %s: %s", paths[i], strerror(errno));
}

/* Keeps what the journal records of an earlier run's list.  A failure is a warning. */
static void truncate_bad_list(struct prepare_output *o)
{
    uint64_t size = 0;
    if (file_exists(o->bad_list) && file_size(o->bad_list, &size)) size = 0;
    if (o->bad_bytes > size) o->bad_bytes = size;
    o->bad_failed = o->bad_bytes ? truncate(o->bad_list, (off_t)o->bad_bytes) != 0
                                 : unlink(o->bad_list) && errno != ENOENT;
    if (o->bad_failed)
        log_line(LOG_WARN, "cannot list bad records: %s: %s", o->bad_list, strerror(errno));
}

/* Deletes what a run left that was killed after it had published its output. */
static enum status clean_up(const struct prepare_output *o)
{
    bool has_idx, has_part;
    TRY(find(o->idx, &has_idx));
    TRY(find(o->bin_part, &has_part));
    if (has_idx && !has_part) remove_work_files(o, false);
    return STATUS_OK;
}

/* Truncates both .part files to what the journal records, and locks the .bin.part. */
enum status prepare_output_open(struct prepare_output *o)
{
    const char *prefix = o->prefix;
    o->bin_fd = o->idx_fd = o->bad_fd = -1;
    o->bin = with_suffix(prefix, ".bin"), o->bin_part = with_suffix(prefix, ".bin.part");
    o->idx = with_suffix(prefix, ".idx"), o->idx_part = with_suffix(prefix, ".idx.part");
    o->journal = with_suffix(prefix, ".prepare.json");
    o->bad_list = with_suffix(prefix, ".bad_records");
    TRY(clean_up(o));
    TRY(check_no_output(o));
    o->bin_fd = open(o->bin_part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (o->bin_fd < 0) FAIL(IO, "%s: cannot write it: %s", o->bin, strerror(errno));
    /* Where the file system does not support locks, the user must not start two. */
    if (flock(o->bin_fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        FAIL(CONFIG, "%s: another process is writing it", o->bin);
    TRY(check_no_output(o)); /* another run may have finished before the lock */
    o->idx_fd = open(o->idx_part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (o->idx_fd < 0) FAIL(IO, "%s: cannot write it: %s", o->idx, strerror(errno));
    TRY(read_journal(o));
    if (ftruncate(o->bin_fd, (off_t)(o->done.tokens * (uint64_t)o->done.token_bytes)))
        FAIL(IO, "%s: %s", o->bin_part, strerror(errno));
    if (ftruncate(o->idx_fd, (off_t)(o->done.documents * sizeof(int32_t))))
        FAIL(IO, "%s: %s", o->idx_part, strerror(errno));
    truncate_bad_list(o);
    o->journal_s = clock_monotonic_s();
    return STATUS_OK;
}

void prepare_output_close(struct prepare_output *o)
{
    const int fds[] = {o->bin_fd, o->idx_fd, o->bad_fd};
    for (int i = 0; i < 3; i++)
        if (o->bin && fds[i] >= 0) close(fds[i]);
    megatron_sum_release(&o->bin_sum);
    bad_records_release(&o->bad);
    free(o->bin), free(o->bin_part), free(o->idx), free(o->idx_part);
    free(o->journal), free(o->bad_list);
}

static enum status append_bad(struct prepare_output *o, const struct text *lines)
{
    if (o->bad_fd < 0) o->bad_fd = open(o->bad_list, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (o->bad_fd < 0) FAIL(IO, "%s: %s", o->bad_list, strerror(errno));
    TRY(file_write_at(o->bad_fd, o->bad_list, lines->data, lines->len, o->bad_bytes));
    o->bad_bytes += lines->len;
    return STATUS_OK;
}

enum status prepare_output_write(struct prepare_output *o, const struct prepare_documents *d)
{
    uint64_t each = (uint64_t)o->done.token_bytes;
    size_t lengths_bytes = d->num_lengths * sizeof *d->lengths;
    o->in_batch = true;
    megatron_sum_add(&o->bin_sum, d->ids, d->num_ids * each);
    o->lengths_crc = checksum_crc32c(o->lengths_crc, d->lengths, lengths_bytes);
    TRY(file_write_at(o->bin_fd, o->bin_part, d->ids, d->num_ids * each, o->done.tokens * each));
    TRY(file_write_at(o->idx_fd, o->idx_part, d->lengths, lengths_bytes,
                      o->done.documents * sizeof *d->lengths));
    o->done.tokens += d->num_ids;
    o->done.documents += d->num_lengths;
    o->done.text_bytes += d->text_bytes;
    bad_records_move(&o->bad, d->bad);
    return STATUS_OK;
}

/* Lists and counts the batch's bad records.  A list that cannot be written is a warning. */
static enum status commit_bad(struct prepare_output *o)
{
    struct text lines = {0};
    o->bad.num_read = o->done.records += o->bad.num_read;
    o->bad.num_bad = o->done.bad_records += o->bad.num_bad;
    bad_records_write(&o->bad, -1, &lines);
    if (lines.len && !o->bad_failed && append_bad(o, &lines)) {
        log_line(LOG_WARN, "cannot list bad records: %s", status_message());
        o->bad_failed = true;
    }
    enum status st = bad_records_check(&o->bad, o->bad_record_limit, NULL);
    bad_records_clear(&o->bad);
    o->bad.num_read = o->bad.num_bad = 0;
    text_release(&lines);
    return st;
}

enum status prepare_output_commit(struct prepare_output *o, size_t source, uint64_t position)
{
    o->source = source, o->position = position;
    o->in_batch = false;
    TRY(commit_bad(o));
    if (clock_monotonic_s() - o->journal_s > JOURNAL_SECONDS) TRY(prepare_output_sync(o));
    return STATUS_OK;
}

void prepare_output_fail(struct prepare_output *o)
{
    if (o->done.documents) {
        prepare_output_sync(o);
        return;
    }
    remove_work_files(o, is_half_published(o));
    unlink(o->bin_part); /* last, because it has the lock */
}

enum status prepare_output_sync(struct prepare_output *o)
{
    struct text t = {0};
    struct json_writer w = {.text = &t};
    if (o->in_batch) return STATUS_OK;
    if (fdatasync(o->bin_fd)) FAIL(IO, "%s: fsync: %s", o->bin_part, strerror(errno));
    if (fdatasync(o->idx_fd)) FAIL(IO, "%s: fsync: %s", o->idx_part, strerror(errno));
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "settings", o->settings);
    json_write_int(&w, "source", (int64_t)o->source);
    json_write_int(&w, "place", (int64_t)o->position);
    json_write_int(&w, "documents", (int64_t)o->done.documents);
    json_write_int(&w, "tokens", (int64_t)o->done.tokens);
    json_write_int(&w, "text_bytes", (int64_t)o->done.text_bytes);
    json_write_int(&w, "records", (int64_t)o->done.records);
    json_write_int(&w, "bad_records", (int64_t)o->done.bad_records);
    json_write_int(&w, "bad_bytes", (int64_t)o->bad_bytes);
    json_write_int(&w, "lengths_crc32c", o->lengths_crc);
    json_write_int(&w, "sums_crc32c", megatron_sum_digest(&o->bin_sum));
    provenance_write(o->provenance, &w);
    json_end_object(&w);
    json_finish(&w);
    text_adds(&t, "\n");
    enum status st = file_write(o->journal, t.data, t.len);
    text_release(&t);
    o->journal_s = clock_monotonic_s();
    return st;
}

/* An .idx being written. */
struct index_file {
    const char *path;
    int fd;
    struct megatron_sum sum;
};

static enum status append_index(struct index_file *f, const void *bytes, size_t len)
{
    uint64_t at = f->sum.bytes;
    megatron_sum_add(&f->sum, bytes, len);
    TRY(file_write_at(f->fd, f->path, bytes, len, at));
    return STATUS_OK;
}

/* The arrays of an .idx, in their order; the last also has the end of the last document. */
enum index_array { INDEX_LENGTHS, INDEX_POINTERS, INDEX_DOCUMENTS, INDEX_ARRAYS };

/* Writes an array of the .idx from the lengths in the .part. */
static enum status append_array(const struct prepare_output *o, struct index_file *f,
                                enum index_array array)
{
    enum { BATCH_ENTRIES = 1 << 16 };
    const bool reads = array != INDEX_DOCUMENTS, copies = array == INDEX_LENGTHS;
    uint64_t n = o->done.documents, items = reads ? n : n + 1, pointer = 0;
    int32_t *lengths = heap(BATCH_ENTRIES * sizeof *lengths);
    int64_t *values = heap(BATCH_ENTRIES * sizeof *values);
    uint32_t crc = 0;
    enum status st = STATUS_OK;
    for (uint64_t i = 0; i < items; i += BATCH_ENTRIES) {
        size_t count = items - i < BATCH_ENTRIES ? (size_t)(items - i) : BATCH_ENTRIES;
        if (reads)
            TRY_OUT(file_read_at(o->idx_fd, o->idx_part, lengths, count * sizeof *lengths,
                                 i * sizeof *lengths));
        if (reads) crc = checksum_crc32c(crc, lengths, count * sizeof *lengths);
        for (size_t j = 0; j < count && !copies; j++) {
            values[j] = reads ? (int64_t)pointer : (int64_t)(i + j);
            if (reads) pointer += (uint64_t)lengths[j] * (uint64_t)o->done.token_bytes;
        }
        TRY_OUT(append_index(f, copies ? (void *)lengths : values,
                             count * (copies ? sizeof *lengths : sizeof *values)));
    }
    if (reads && crc != o->lengths_crc)
        FAIL_OUT(DATA, "%s has changed: checksum mismatch; use --force to start over", o->idx_part);
out:
    free(lengths), free(values);
    return st;
}

static enum status write_index(const struct prepare_output *o, struct index_file *f)
{
    unsigned char head[MEGATRON_HEADER_BYTES];
    enum status st = STATUS_OK;
    f->fd = open(f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0) FAIL(IO, "%s: %s", f->path, strerror(errno));
    megatron_build_header(o->done.token_bytes == 2 ? MEGATRON_U16 : MEGATRON_I32, o->done.documents,
                          head);
    TRY_OUT(append_index(f, head, sizeof head));
    for (enum index_array array = 0; array < INDEX_ARRAYS; array++)
        TRY_OUT(append_array(o, f, array));
    if (fsync(f->fd)) FAIL_OUT(IO, "%s: %s", f->path, strerror(errno));
out:
    close(f->fd);
    return st;
}

enum status prepare_output_publish(struct prepare_output *o)
{
    const char *prefix = o->prefix;
    char *temporary = with_suffix(prefix, ".idx.tmp");
    struct index_file index = {.path = temporary};
    enum status st = STATUS_OK;
    o->source = o->num_sources, o->position = 0;
    TRY_OUT(prepare_output_sync(o));
    TRY_OUT(write_index(o, &index));
    unlink(o->idx); /* an old index would not match the new .bin */
    TRY_OUT(file_rename(o->bin_part, o->bin));
    TRY_OUT(megatron_sum_write(prefix, &o->bin_sum, &index.sum));
    TRY_OUT(file_rename(temporary, o->idx));
    TRY_OUT(file_sync_parent(o->idx));
    remove_work_files(o, false);
out:
    if (st) unlink(temporary); /* the next run writes it again */
    megatron_sum_release(&index.sum);
    free(temporary);
    return st;
}
