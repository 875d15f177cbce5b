#define _GNU_SOURCE
#include "stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PROMPT_TOKENS = 31,
    MAX_TEMPLATES = 16,
    ID_DIGITS = 16,
};

// A burst stream written once and copied for each request; only its ids differ.
typedef struct {
    usage_mode usage;
    int chunks;
    buffer bytes;
    size_t *id_offsets;
    int ids;
} template;

static template templates[MAX_TEMPLATES];
static int template_count;

#define ID_MARK "9d1f2a7be0c4d5e6"
#define CHUNK_HEAD                                                                  \
    "data: {\"id\":\"chatcmpl-3f0c8a51b7d94c6e" ID_MARK "\","                       \
    "\"object\":\"chat.completion.chunk\",\"created\":1760000000,\"model\":\"mock\"," \
    "\"choices\":["

static const char STREAM_HEAD[] =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";

static const char COMPLETION[] =
    "{\"id\":\"chatcmpl-3f0c8a51b7d94c6e" ID_MARK "\",\"object\":\"chat.completion\","
    "\"created\":1760000000,\"model\":\"mock\",\"choices\":[{\"index\":0,\"message\":{"
    "\"role\":\"assistant\",\"content\":\"The three primary colours of light are red, green and "
    "blue. Mixed in equal parts they give white, and pairs of them give cyan, magenta and yellow, "
    "which is why screens are built from tiny red, green and blue elements placed close "
    "together.\",\"refusal\":null,\"tool_calls\":[]},\"logprobs\":null,\"finish_reason\":\"stop\","
    "\"stop_reason\":null}],\"service_tier\":null,\"system_fingerprint\":null,\"usage\":{"
    "\"prompt_tokens\":31,\"total_tokens\":83,\"completion_tokens\":52,"
    "\"prompt_tokens_details\":null},\"prompt_logprobs\":null,\"kv_transfer_params\":null}";

void die(const char *what) {
    perror(what);
    exit(1);
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void append(buffer *b, const char *bytes, size_t length) {
    if (b->length + length > b->capacity) {
        size_t capacity = b->capacity ? b->capacity : 4096;
        while (capacity < b->length + length) capacity *= 2;
        b->bytes = realloc(b->bytes, capacity);
        if (!b->bytes) die("realloc");
        b->capacity = capacity;
    }
    memcpy(b->bytes + b->length, bytes, length);
    b->length += length;
}

// One SSE event as one HTTP chunk, which is how uvicorn sends what vLLM yields.
static void append_event(buffer *b, const char *event, size_t length) {
    char head[24];
    append(b, head, snprintf(head, sizeof head, "%zx\r\n", length));
    append(b, event, length);
    append(b, "\r\n", 2);
}

static void write_hex(char *to, uint64_t value) {
    for (int i = ID_DIGITS - 1; i >= 0; i--, value >>= 4) to[i] = "0123456789abcdef"[value & 15];
}

// Give the bytes from `begin` on their id.
static void write_ids(buffer *b, size_t begin, uint64_t id) {
    char *at = b->bytes + begin, *end = b->bytes + b->length;
    while ((at = memmem(at, end - at, ID_MARK, ID_DIGITS))) {
        write_hex(at, id);
        at += ID_DIGITS;
    }
}

static void append_choice(buffer *b, const char *choice, usage_mode usage, int tokens) {
    char event[768];
    int n = snprintf(event, sizeof event, CHUNK_HEAD "%s]", choice);
    if (usage == USAGE_CONTINUOUS)
        n += snprintf(event + n, sizeof event - n,
                      ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,"
                      "\"completion_tokens\":%d,\"completion_tokens_details\":null}",
                      PROMPT_TOKENS, PROMPT_TOKENS + tokens, tokens);
    n += snprintf(event + n, sizeof event - n, "}\n\n");
    append_event(b, event, n);
}

static void write_first(buffer *b, usage_mode usage) {
    append(b, STREAM_HEAD, sizeof STREAM_HEAD - 1);
    append_choice(b,
                  "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                  "\"logprobs\":null,\"finish_reason\":null}",
                  usage, 0);
}

static void write_content(buffer *b, usage_mode usage, int index, uint64_t stamp_ns) {
    char choice[256];
    snprintf(choice, sizeof choice,
             "{\"index\":0,\"delta\":{\"content\":\" tok%04d @%019llu\"},"
             "\"logprobs\":null,\"finish_reason\":null}",
             index, (unsigned long long)stamp_ns);
    append_choice(b, choice, usage, index + 1);
}

static void write_last(buffer *b, usage_mode usage, int chunks) {
    append_choice(b, "{\"index\":0,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}", usage,
                  chunks);
    if (usage != USAGE_NEVER) {
        char event[512];
        int n = snprintf(event, sizeof event,
                         CHUNK_HEAD "],\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,"
                                    "\"completion_tokens\":%d,\"prompt_tokens_details\":null}}\n\n",
                         PROMPT_TOKENS, PROMPT_TOKENS + chunks, chunks);
        append_event(b, event, n);
    }
    append_event(b, "data: [DONE]\n\n", 14);
    append(b, "0\r\n\r\n", 5);
}

static template *burst_template(usage_mode usage, int chunks) {
    for (int i = 0; i < template_count; i++)
        if (templates[i].usage == usage && templates[i].chunks == chunks) return &templates[i];
    if (template_count == MAX_TEMPLATES) die("too many kinds of streams");
    template *t = &templates[template_count++];
    t->usage = usage;
    t->chunks = chunks;
    write_first(&t->bytes, usage);
    for (int i = 0; i < chunks; i++) write_content(&t->bytes, usage, i, 0);
    write_last(&t->bytes, usage, chunks);
    t->id_offsets = calloc(chunks + 4, sizeof *t->id_offsets);
    if (!t->id_offsets) die("calloc");
    char *at = t->bytes.bytes, *end = at + t->bytes.length;
    while ((at = memmem(at, end - at, ID_MARK, ID_DIGITS))) {
        t->id_offsets[t->ids++] = at - t->bytes.bytes;
        at += ID_DIGITS;
    }
    return t;
}

void append_json(buffer *b, int status, const char *body, uint64_t id) {
    char head[160];
    append(b, head,
           snprintf(head, sizeof head,
                    "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                    status, status == 200 ? "OK" : "Refused", strlen(body)));
    size_t begin = b->length;
    append(b, body, strlen(body));
    write_ids(b, begin, id);
}

void append_completion(buffer *b, uint64_t id) { append_json(b, 200, COMPLETION, id); }

void append_first(buffer *b, usage_mode usage, uint64_t id) {
    size_t begin = b->length;
    write_first(b, usage);
    write_ids(b, begin, id);
}

void append_content(buffer *b, usage_mode usage, int index, uint64_t stamp_ns, uint64_t id) {
    size_t begin = b->length;
    write_content(b, usage, index, stamp_ns);
    write_ids(b, begin, id);
}

void append_last(buffer *b, usage_mode usage, int chunks, uint64_t id) {
    size_t begin = b->length;
    write_last(b, usage, chunks);
    write_ids(b, begin, id);
}

void append_burst(buffer *b, usage_mode usage, int chunks, uint64_t id) {
    const template *t = burst_template(usage, chunks);
    size_t begin = b->length;
    append(b, t->bytes.bytes, t->bytes.length);
    for (int i = 0; i < t->ids; i++) write_hex(b->bytes + begin + t->id_offsets[i], id);
}
