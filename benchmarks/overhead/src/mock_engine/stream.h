// The bytes of the mock's answers: JSON replies, SSE streams, and whole streams kept ready.
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { MAX_CHUNKS = 10000 };

typedef enum { USAGE_NEVER, USAGE_LAST, USAGE_CONTINUOUS } usage_mode;

typedef struct {
    char *bytes;
    size_t length, capacity;
} buffer;

void append(buffer *b, const char *bytes, size_t length);

// A whole JSON response; every id in `body` becomes `id`.
void append_json(buffer *b, int status, const char *body, uint64_t id);
void append_completion(buffer *b, uint64_t id);

// A stream in its parts: head and role, each content chunk, finish reason, usage and [DONE].
void append_first(buffer *b, usage_mode usage, uint64_t id);
void append_content(buffer *b, usage_mode usage, int index, uint64_t stamp_ns, uint64_t id);
void append_last(buffer *b, usage_mode usage, int chunks, uint64_t id);

// A whole stream at once, copied from one written earlier.
void append_burst(buffer *b, usage_mode usage, int chunks, uint64_t id);

uint64_t now_ns(void);
void die(const char *what);
