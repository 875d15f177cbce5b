#include "figures.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_SAMPLES = 1 << 25 };

void die(const char *what) {
    perror(what);
    exit(1);
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void add_sample(samples *s, uint64_t ns) {
    if (s->count == s->capacity) {
        if (s->capacity >= MAX_SAMPLES) return;
        s->capacity = s->capacity ? s->capacity * 2 : 65536;
        s->tenths = realloc(s->tenths, s->capacity * sizeof *s->tenths);
        if (!s->tenths) die("realloc");
    }
    uint64_t tenths = ns / 100;
    s->tenths[s->count++] = tenths > UINT32_MAX ? UINT32_MAX : tenths;
}

static int compare(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile_ms(const samples *s, double q) {
    return s->tenths[(size_t)((s->count - 1) * q)] / 10000.0;
}

static void print_samples(const char *name, samples *s) {
    if (!s->count) {
        printf(",\"%s\":null", name);
        return;
    }
    qsort(s->tenths, s->count, sizeof *s->tenths, compare);
    printf(",\"%s\":{\"count\":%zu,\"p50\":%.4f,\"p90\":%.4f,\"p99\":%.4f,\"p999\":%.4f,\"max\":%.4f}",
           name, s->count, quantile_ms(s, .5), quantile_ms(s, .9), quantile_ms(s, .99),
           quantile_ms(s, .999), quantile_ms(s, 1));
}

void print_figures(figures *f, double elapsed_seconds) {
    printf("{\"elapsed_s\":%.4f,\"issued\":%ld,\"answered\":%ld,\"errors\":%ld,\"bad_status\":%ld,"
           "\"bad_body\":%ld,\"incomplete\":%ld,\"unfinished\":%ld,\"reconnects\":%ld,"
           "\"rps\":%.1f,\"chunks\":%ld,\"chunks_s\":%.0f",
           elapsed_seconds, f->issued, f->answered, f->errors, f->bad_status, f->bad_body,
           f->incomplete, f->unfinished, f->reconnects, f->answered / elapsed_seconds, f->chunks,
           f->chunks / elapsed_seconds);
    print_samples("latency_ms", &f->latencies);
    print_samples("first_byte_ms", &f->first_bytes);
    print_samples("delay_ms", &f->delays);
    printf("}\n");
}
