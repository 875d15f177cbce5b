// What a run of the load client counts and times.
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct {
    uint32_t *tenths;  // of a microsecond: a bare loopback answer takes seven
    size_t count, capacity;
} samples;

typedef struct {
    long issued;
    long answered;    // status 200 and the whole body expected
    long errors;      // the connection failed before the reply was whole
    long bad_status;  // another status than 200
    long bad_body;    // no JSON object, or not the text expected
    long incomplete;  // a stream without [DONE] or with another number of events
    long unfinished;  // no reply when the time was over, or never sent
    long reconnects;
    long chunks;  // data events, [DONE] left out
    samples latencies, first_bytes;
    samples delays;  // from the engine's write of a stamped chunk to our read
} figures;

// Add one span. Past 2^25 samples (a minute at half a million a second) further ones are dropped.
void add_sample(samples *s, uint64_t ns);

// Print all as one line of JSON; sorts the samples.
void print_figures(figures *f, double elapsed_seconds);

uint64_t now_ns(void);
void die(const char *what);
