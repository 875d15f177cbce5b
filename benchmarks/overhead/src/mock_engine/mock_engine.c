// A mock inference engine: one thread, epoll, HTTP/1.1, OpenAI's chat completions in vLLM's wording.
//
//   mock_engine            listens on a free port of 127.0.0.1 and prints "port N" on stdout
//
// POST on any path, for any model, answers a JSON completion, or SSE when the body has
// "stream":true. Tags in the prompt steer the stream:
//   chunks=200      content chunks
//   pace_ms=20      milliseconds between chunks; 0: the whole stream at once
//   usage=last      answer like an engine that does not know continuous_usage_stats
// stream_options as vLLM reads them: include_usage adds a last chunk with usage, and with
// continuous_usage_stats beside it every chunk carries the cumulative usage so far.
//
// The content of a paced chunk holds "@" and the CLOCK_MONOTONIC nanoseconds at which it was
// written, so that a client on the same machine can tell the delay of its delivery. Every reply has
// its own id.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "stream.h"

enum {
    MAX_REQUEST_BYTES = 8 << 20,
    MAX_LIFETIME_SECONDS = 2 * 3600,
};

typedef struct connection {
    int fd;
    buffer in, out;
    size_t sent;           // bytes of `out` already written to the socket
    int close_after_reply;
    int waits_for_space;   // EPOLLOUT is armed
    int is_paced;          // a paced stream is running; further requests wait
    int chunks, chunks_left;
    usage_mode usage;
    uint64_t reply_id, due_ns, step_ns;
    int paced_index;       // place in `paced`
} connection;

static int epoll_fd;
static connection **paced;
static int paced_count, paced_capacity;
static uint64_t reply_ids;

// ---- connections -------------------------------------------------------------------------------

static void watch(connection *c, uint32_t events, int operation) {
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, operation, c->fd, &e)) die("epoll_ctl");
}

static void leave_paced(connection *c) {
    paced[c->paced_index] = paced[--paced_count];
    paced[c->paced_index]->paced_index = c->paced_index;
    c->is_paced = 0;
}

static void close_connection(connection *c) {
    if (c->is_paced) leave_paced(c);
    close(c->fd);
    free(c->in.bytes);
    free(c->out.bytes);
    free(c);
}

// Write what the socket takes. Returns -1 when the connection is over.
static int flush(connection *c) {
    while (c->sent < c->out.length) {
        ssize_t n = send(c->fd, c->out.bytes + c->sent, c->out.length - c->sent, MSG_NOSIGNAL);
        if (n >= 0) {
            c->sent += n;
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return -1;
        if (!c->waits_for_space) watch(c, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
        c->waits_for_space = 1;
        return 0;
    }
    c->sent = c->out.length = 0;
    if (c->waits_for_space) watch(c, EPOLLIN, EPOLL_CTL_MOD);
    c->waits_for_space = 0;
    return c->close_after_reply && !c->is_paced ? -1 : 0;
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) return;
        int one = 1, send_buffer = 256 * 1024;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
        connection *c = calloc(1, sizeof *c);
        if (!c) die("calloc");
        c->fd = fd;
        watch(c, EPOLLIN, EPOLL_CTL_ADD);
    }
}

// ---- answers -----------------------------------------------------------------------------------

static int tag_value(const char *body, const char *name, int otherwise) {
    const char *at = strstr(body, name);
    return at ? atoi(at + strlen(name)) : otherwise;
}

static int is_true(const char *body, const char *field) {
    const char *at = strstr(body, field);
    if (!at) return 0;
    at += strlen(field);
    while (*at == ' ' || *at == ':') at++;
    return !strncmp(at, "true", 4);
}

static void begin_paced(connection *c, int chunks, int pace_ms) {
    append_first(&c->out, c->usage, c->reply_id);
    c->chunks = c->chunks_left = chunks;
    c->step_ns = pace_ms * 1000000ull;
    c->due_ns = now_ns() + c->step_ns;
    c->is_paced = 1;
    if (paced_count == paced_capacity) {
        paced_capacity = paced_capacity ? paced_capacity * 2 : 1024;
        paced = realloc(paced, paced_capacity * sizeof *paced);
        if (!paced) die("realloc");
    }
    c->paced_index = paced_count;
    paced[paced_count++] = c;
}

static void answer_stream(connection *c, const char *body) {
    int chunks = tag_value(body, "chunks=", 200), pace_ms = tag_value(body, "pace_ms=", 0);
    if (chunks < 1) chunks = 1;
    if (chunks > MAX_CHUNKS) chunks = MAX_CHUNKS;
    c->usage = USAGE_NEVER;
    if (is_true(body, "\"include_usage\"")) c->usage = USAGE_LAST;
    if (c->usage == USAGE_LAST && is_true(body, "\"continuous_usage_stats\"") &&
        !strstr(body, "usage=last"))
        c->usage = USAGE_CONTINUOUS;
    if (pace_ms > 0)
        begin_paced(c, chunks, pace_ms);
    else
        append_burst(&c->out, c->usage, chunks, c->reply_id);
}

static void answer(connection *c, const char *head, const char *body) {
    c->reply_id = ++reply_ids;
    if (!strncmp(head, "POST ", 5)) {
        if (is_true(body, "\"stream\""))
            answer_stream(c, body);
        else
            append_completion(&c->out, c->reply_id);
    } else if (!strncmp(head, "GET /v1/models", 14)) {
        append_json(&c->out, 200,
                    "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\","
                    "\"created\":1760000000,\"owned_by\":\"vllm\"}]}",
                    c->reply_id);
    } else {
        append_json(&c->out, 200, "{}", c->reply_id);
    }
}

// ---- requests ----------------------------------------------------------------------------------

// Read the headers that matter between `head` and `end`. Returns 0 for a body without a length.
static int read_headers(connection *c, const char *head, const char *end, size_t *body_length) {
    *body_length = 0;
    for (const char *line = head; line < end;) {
        const char *stop = memmem(line, end - line + 2, "\r\n", 2);
        if (!stop) break;
        if (!strncasecmp(line, "content-length:", 15)) {
            *body_length = strtoul(line + 15, NULL, 10);
        } else if (!strncasecmp(line, "transfer-encoding:", 18)) {
            return 0;
        } else if (!strncasecmp(line, "connection:", 11)) {
            const char *value = line + 11;
            while (*value == ' ') value++;
            if (!strncasecmp(value, "close", 5)) c->close_after_reply = 1;
        }
        line = stop + 2;
    }
    return 1;
}

// Answer every whole request that is buffered. Returns -1 when the connection is over.
static int answer_buffered(connection *c) {
    while (!c->is_paced && c->in.length) {
        char *head = c->in.bytes;
        char *end = memmem(head, c->in.length, "\r\n\r\n", 4);
        if (!end) return c->in.length > MAX_REQUEST_BYTES ? -1 : 0;
        size_t head_length = end + 4 - head, body_length;
        if (!read_headers(c, head, end, &body_length)) {
            c->close_after_reply = 1;
            append_json(&c->out, 411,
                        "{\"error\":{\"message\":\"the mock needs a content-length\"}}", 0);
            return flush(c);
        }
        if (body_length > MAX_REQUEST_BYTES) return -1;
        size_t total = head_length + body_length;
        if (c->in.length < total) return 0;
        char *body = head + head_length, kept = body[body_length];
        body[body_length] = 0;  // there is always one byte more than `length`: see receive()
        answer(c, head, body);
        body[body_length] = kept;
        memmove(head, head + total, c->in.length - total);
        c->in.length -= total;
        if (flush(c)) return -1;
    }
    return 0;
}

// Take what the socket has. Returns -1 when the connection is over.
static int receive(connection *c) {
    static char bytes[65536];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0) return -1;
    append(&c->in, bytes, n);
    append(&c->in, "", 1);  // room for the terminator that answer_buffered() writes
    c->in.length--;
    return answer_buffered(c);
}

// Write one chunk of every paced stream that is due.
static void advance_paced(void) {
    uint64_t now = now_ns();
    for (int i = 0; i < paced_count; i++) {
        connection *c = paced[i];
        if (c->due_ns > now) continue;
        append_content(&c->out, c->usage, c->chunks - c->chunks_left, now_ns(), c->reply_id);
        c->due_ns += c->step_ns;
        int is_over = --c->chunks_left == 0;
        if (is_over) append_last(&c->out, c->usage, c->chunks, c->reply_id);
        if (is_over) {
            leave_paced(c);
            i--;  // the last one took this place
            if (flush(c) || answer_buffered(c)) close_connection(c);
        } else if (flush(c)) {
            close_connection(c);
            i--;
        }
    }
}

static int listen_on_loopback(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (fd < 0 || bind(fd, (void *)&address, length) || listen(fd, 4096)) die("listen");
    if (getsockname(fd, (void *)&address, &length)) die("getsockname");
    printf("port %d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // never outlive the benchmark
    alarm(MAX_LIFETIME_SECONDS);
    struct timespec start;
    clock_gettime(CLOCK_REALTIME, &start);
    reply_ids = (uint64_t)start.tv_sec << 28;
    int listener = listen_on_loopback();
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e)) die("epoll");
    static struct epoll_event events[512];
    for (;;) {  // until SIGTERM or the alarm
        int ready = epoll_wait(epoll_fd, events, 512, paced_count ? 1 : -1);
        for (int i = 0; i < ready; i++) {
            connection *c = events[i].data.ptr;
            if (!c) {
                accept_all(listener);
                continue;
            }
            int is_over = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0;
            if (!is_over && events[i].events & EPOLLOUT) is_over = flush(c) != 0;
            if (!is_over && events[i].events & EPOLLIN) is_over = receive(c) != 0;
            if (is_over) close_connection(c);
        }
        if (paced_count) advance_paced();
    }
}
