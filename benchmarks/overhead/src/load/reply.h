// One HTTP/1.1 reply, read as its bytes come: a JSON body or an SSE stream.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "figures.h"

enum {
    MAX_HEAD_BYTES = 8192,
    MAX_KEPT_BYTES = 8192,  // of a JSON body, for its check; of an SSE line
};

typedef enum { IN_SIZE, IN_EXTENSION, IN_DATA, AFTER_DATA, IN_TRAILER } chunk_state;

typedef struct {
    int is_sse;
    uint64_t started_ns;  // in an open loop: when the request should have been sent
    // head
    int in_head, status, is_chunked, closes, is_done;
    long length, received;  // length -1: not given
    char head[MAX_HEAD_BYTES];
    size_t head_length;
    // chunked transfer coding
    chunk_state chunk;
    size_t chunk_left;
    int trailer_length;
    // body: a JSON reply, or the SSE line that has begun
    char kept[MAX_KEPT_BYTES + 1];
    size_t kept_length;
    int events, has_done, has_body;
} reply;

void begin_reply(reply *r, int is_sse, uint64_t started_ns);

// Take bytes that came at `now`; sets is_done at the reply's end, counts events and delays.
void read_reply(reply *r, const char *bytes, size_t length, uint64_t now, figures *f);

// A JSON object that holds `expected_text` (NULL: any).
int is_expected_json(const reply *r, const char *expected_text);

// Ended by [DONE], with `expected_events` data events before it (0: any number).
int is_whole_stream(const reply *r, int expected_events);
