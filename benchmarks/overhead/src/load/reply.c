#define _GNU_SOURCE
#include "reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>

void begin_reply(reply *r, int is_sse, uint64_t started_ns) {
    r->is_sse = is_sse;
    r->started_ns = started_ns;
    r->in_head = 1;
    r->length = -1;
    r->status = r->is_chunked = r->closes = r->is_done = 0;
    r->received = 0;
    r->head_length = r->kept_length = r->chunk_left = 0;
    r->chunk = IN_SIZE;
    r->trailer_length = r->events = r->has_done = r->has_body = 0;
}

static void read_line(reply *r, const char *line, size_t length, uint64_t now, figures *f) {
    if (length < 6 || memcmp(line, "data:", 5)) return;
    if (memmem(line, length < 16 ? length : 16, "[DONE]", 6)) {
        r->has_done = 1;
        return;
    }
    r->events++;
    f->chunks++;
    const char *stamp = memchr(line, '@', length);
    if (!stamp) return;
    uint64_t written_ns = strtoull(stamp + 1, NULL, 10);  // ends at the quote: never past the line
    if (written_ns && now > written_ns) add_sample(&f->delays, now - written_ns);
}

static void keep(reply *r, const char *bytes, size_t length) {
    size_t room = MAX_KEPT_BYTES - r->kept_length;
    if (length > room) length = room;
    memcpy(r->kept + r->kept_length, bytes, length);
    r->kept_length += length;
    r->kept[r->kept_length] = 0;
}

static void read_lines(reply *r, const char *bytes, size_t length, uint64_t now, figures *f) {
    while (length) {
        const char *stop = memchr(bytes, '\n', length);
        if (!stop) {
            keep(r, bytes, length);
            return;
        }
        size_t n = stop - bytes;
        if (r->kept_length) {
            keep(r, bytes, n);
            read_line(r, r->kept, r->kept_length, now, f);
            r->kept_length = 0;
        } else {
            read_line(r, bytes, n, now, f);
        }
        bytes += n + 1;
        length -= n + 1;
    }
}

static void read_body(reply *r, const char *bytes, size_t length, uint64_t now, figures *f) {
    if (!r->has_body && length) {
        r->has_body = 1;
        add_sample(&f->first_bytes, now - r->started_ns);
    }
    r->received += length;
    if (r->is_sse)
        read_lines(r, bytes, length, now, f);
    else
        keep(r, bytes, length);
}

static int hex_value(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 32;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static void read_chunked(reply *r, const char *bytes, size_t length, uint64_t now, figures *f) {
    for (const char *end = bytes + length; bytes < end && !r->is_done;) {
        if (r->chunk == IN_DATA) {
            size_t n = r->chunk_left < (size_t)(end - bytes) ? r->chunk_left : (size_t)(end - bytes);
            read_body(r, bytes, n, now, f);
            bytes += n;
            r->chunk_left -= n;
            if (!r->chunk_left) r->chunk = AFTER_DATA;
            continue;
        }
        char byte = *bytes++;
        if (byte == '\r') continue;
        if (byte != '\n') {
            if (r->chunk == IN_SIZE && hex_value(byte) >= 0)
                r->chunk_left = r->chunk_left * 16 + hex_value(byte);
            else if (r->chunk == IN_SIZE)
                r->chunk = IN_EXTENSION;
            else if (r->chunk == IN_TRAILER)
                r->trailer_length++;
        } else if (r->chunk == AFTER_DATA) {
            r->chunk = IN_SIZE;
        } else if (r->chunk == IN_TRAILER) {
            r->is_done = r->trailer_length == 0;
            r->trailer_length = 0;
        } else {
            r->chunk = r->chunk_left ? IN_DATA : IN_TRAILER;
        }
    }
}

// Take the reply's head. Returns how many of the bytes belong to it, or -1 while it is not whole.
static ssize_t read_head(reply *r, const char *bytes, size_t length) {
    size_t before = r->head_length, room = MAX_HEAD_BYTES - 1 - before;
    size_t n = length < room ? length : room;
    memcpy(r->head + before, bytes, n);
    r->head_length += n;
    r->head[r->head_length] = 0;
    char *end = strstr(r->head, "\r\n\r\n");
    if (!end) return -1;
    r->in_head = 0;
    r->status = atoi(r->head + 9);
    for (char *line = r->head; line < end;) {
        if (!strncasecmp(line, "content-length:", 15)) r->length = atol(line + 15);
        if (!strncasecmp(line, "transfer-encoding: chunked", 26)) r->is_chunked = 1;
        if (!strncasecmp(line, "connection: close", 17)) r->closes = 1;
        line = strstr(line, "\r\n") + 2;
    }
    if (!r->is_chunked && r->length == 0) r->is_done = 1;
    return end + 4 - r->head - before;
}

void read_reply(reply *r, const char *bytes, size_t length, uint64_t now, figures *f) {
    if (r->in_head) {
        ssize_t n = read_head(r, bytes, length);
        if (n < 0) return;
        bytes += n;
        length -= n;
    }
    if (r->is_chunked) {
        read_chunked(r, bytes, length, now, f);
        return;
    }
    read_body(r, bytes, length, now, f);
    if (r->length >= 0 && r->received >= r->length) r->is_done = 1;
}

int is_expected_json(const reply *r, const char *expected_text) {
    if (!r->kept_length || r->kept[0] != '{' || r->kept[r->kept_length - 1] != '}') return 0;
    return !expected_text || strstr(r->kept, expected_text) != NULL;
}

int is_whole_stream(const reply *r, int expected_events) {
    return r->has_done && (!expected_events || r->events == expected_events);
}
