// A load client: one thread, epoll, HTTP/1.1 with keep-alive, JSON replies or SSE streams.
//
//   load -p PORT -b BODY_FILE -c CONNECTIONS (-d SECONDS | -n REQUESTS) [options]
//     -r RATE      open loop: RATE requests/s on a fixed schedule; without it a closed loop
//     -t SECONDS   how long the last replies may take (60)
//     -s           replies are SSE streams; each must end with [DONE]
//     -e EVENTS    how many data events, [DONE] left out, each stream must have
//     -x TEXT      text that each JSON reply must hold
//     -z SECONDS   spread the first requests of a closed loop over this time
//     -H "K: V"    a request header; may be repeated
//
// Prints one line of JSON. Only a reply with status 200 and the whole body expected counts as
// answered. In an open loop a latency runs from the moment at which the request should have been
// sent, so that a target that stalls cannot hide its queue. Loopback only.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
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

#include "figures.h"
#include "reply.h"

enum {
    SHORTEST_WAIT_NS = 20000,  // never spin: the engine shares this CPU
    LONGEST_WAIT_NS = 100000000,
};

typedef enum { DISCONNECTED, IDLE, WAITING } connection_state;

typedef struct {
    int fd;
    connection_state state;
    reply reply;
} connection;

static struct {
    const char *body_file, *expected_text;
    int port, connections, is_sse, expected_events;
    long requests;
    double seconds, rate, timeout, ramp;
    char headers[4096];
} options = {.connections = 1, .timeout = 60};

static int epoll_fd;
static struct sockaddr_in address;
static char *request;
static size_t request_length;
static connection *connections;
static figures seen;
static long in_flight;
static uint64_t begin_ns, end_ns, last_reply_ns;

// ---- sending -----------------------------------------------------------------------------------

static int open_connection(connection *c) {
    int one = 1;
    c->state = DISCONNECTED;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0) return -1;
    if (connect(c->fd, (void *)&address, sizeof address)) {
        close(c->fd);
        return -1;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) die("epoll_ctl");
    c->state = IDLE;
    return 0;
}

static int reopen(connection *c) {
    close(c->fd);
    seen.reconnects++;
    return open_connection(c);
}

static void fail(connection *c) {
    seen.errors++;
    in_flight--;
    reopen(c);
}

static int send_request(connection *c) {
    ssize_t n = send(c->fd, request, request_length, MSG_NOSIGNAL);
    return n == (ssize_t)request_length ? 0 : -1;
}

static void start(connection *c, uint64_t intended_ns) {
    seen.issued++;
    in_flight++;
    begin_reply(&c->reply, options.is_sse, intended_ns);
    c->state = WAITING;
    if (!send_request(c)) return;
    if (reopen(c) == 0) {  // a kept connection that the target had closed: once more
        c->state = WAITING;
        if (!send_request(c)) return;
    }
    seen.errors++;
    in_flight--;
    if (c->state == WAITING) reopen(c);
}

static int is_issue_over(uint64_t now) {
    return options.requests ? seen.issued >= options.requests : now >= end_ns;
}

static uint64_t scheduled_ns(void) { return begin_ns + (uint64_t)(seen.issued * 1e9 / options.rate); }

// Send what the schedule has due on idle connections; what finds none waits, its clock running.
static void issue_scheduled(uint64_t now) {
    static int next;
    for (int tried = 0; tried < options.connections && !is_issue_over(now); tried++) {
        uint64_t due_ns = scheduled_ns();
        if (due_ns > now) return;
        connection *c = &connections[next];
        next = (next + 1) % options.connections;
        if (c->state == DISCONNECTED) open_connection(c);
        if (c->state != IDLE) continue;
        start(c, due_ns);
        tried = -1;
    }
}

static void issue_closed(uint64_t now) {
    for (int i = 0; i < options.connections && !is_issue_over(now); i++) {
        connection *c = &connections[i];
        if (c->state == DISCONNECTED) open_connection(c);
        if (c->state != IDLE) continue;
        uint64_t earliest_ns = begin_ns + (uint64_t)(options.ramp * 1e9 * i / options.connections);
        if (now >= earliest_ns) start(c, now);
    }
}

// ---- receiving ---------------------------------------------------------------------------------

static void finish(connection *c, uint64_t now) {
    in_flight--;
    last_reply_ns = now;
    long *bad = NULL;
    if (c->reply.status != 200)
        bad = &seen.bad_status;
    else if (options.is_sse && !is_whole_stream(&c->reply, options.expected_events))
        bad = &seen.incomplete;
    else if (!options.is_sse && !is_expected_json(&c->reply, options.expected_text))
        bad = &seen.bad_body;
    if (!bad) {
        seen.answered++;
        add_sample(&seen.latencies, now - c->reply.started_ns);
    } else if (++*bad == 1) {
        fprintf(stderr, "first such reply: %.600s\n", c->reply.head);
    }
    if (c->reply.closes)
        reopen(c);
    else
        c->state = IDLE;
}

static void receive(connection *c, uint64_t now) {
    static char bytes[262144];
    ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        if (c->state != WAITING) {
            reopen(c);
        } else if (n == 0 && !c->reply.in_head && !c->reply.is_chunked && c->reply.length < 0) {
            c->reply.closes = 1;  // a body that ends with its connection
            finish(c, now);
        } else {
            fail(c);
        }
        return;
    }
    if (c->state != WAITING) return;
    read_reply(&c->reply, bytes, n, now, &seen);
    if (!c->reply.is_done) return;
    finish(c, now);
    if (!options.rate && c->state == IDLE && !is_issue_over(now)) start(c, now);
}

// ---- the run -----------------------------------------------------------------------------------

static int64_t wait_ns(uint64_t now) {
    int64_t ns = LONGEST_WAIT_NS;
    if (options.rate && !is_issue_over(now)) {
        int64_t due_ns = scheduled_ns() - now;
        if (due_ns < ns) ns = due_ns;
    } else if (options.ramp && seen.issued < options.connections) {
        ns = 1000000;
    }
    return ns < SHORTEST_WAIT_NS ? SHORTEST_WAIT_NS : ns;
}

static void run(void) {
    static struct epoll_event events[1024];
    begin_ns = last_reply_ns = now_ns();
    end_ns = begin_ns + (uint64_t)(options.seconds * 1e9);
    uint64_t limit_ns = end_ns + (uint64_t)(options.timeout * 1e9);
    for (;;) {
        uint64_t now = now_ns();
        if (now > limit_ns || (in_flight == 0 && is_issue_over(now))) break;
        if (options.rate)
            issue_scheduled(now);
        else
            issue_closed(now);
        int64_t ns = wait_ns(now_ns());
        struct timespec wait = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        int ready = epoll_pwait2(epoll_fd, events, 1024, &wait, NULL);
        now = now_ns();
        for (int i = 0; i < ready; i++) {
            if (i) now = now_ns();
            receive(events[i].data.ptr, now);
        }
    }
    seen.unfinished = in_flight;
    if (options.requests && seen.issued < options.requests) seen.unfinished += options.requests - seen.issued;
}

static void build_request(void) {
    FILE *file = fopen(options.body_file, "r");
    if (!file) die(options.body_file);
    char *body = malloc(1 << 20);
    request = malloc((1 << 20) + sizeof options.headers + 512);
    if (!body || !request) die("malloc");
    size_t length = fread(body, 1, 1 << 20, file);
    fclose(file);
    request_length = sprintf(request,
                             "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
                             "Accept: */*\r\n%sContent-Type: application/json\r\n"
                             "Content-Length: %zu\r\n\r\n",
                             options.port, options.headers, length);
    memcpy(request + request_length, body, length);
    request_length += length;
    free(body);
}

static void add_header(const char *header) {
    size_t used = strlen(options.headers), room = sizeof options.headers - used;
    if ((size_t)snprintf(options.headers + used, room, "%s\r\n", header) >= room) {
        fprintf(stderr, "too many headers\n");
        exit(2);
    }
}

static void read_options(int count, char **arguments) {
    for (int option; (option = getopt(count, arguments, "p:b:c:d:n:r:t:se:x:z:H:")) > 0;) {
        switch (option) {
            case 'p': options.port = atoi(optarg); break;
            case 'b': options.body_file = optarg; break;
            case 'c': options.connections = atoi(optarg); break;
            case 'd': options.seconds = atof(optarg); break;
            case 'n': options.requests = atol(optarg); break;
            case 'r': options.rate = atof(optarg); break;
            case 't': options.timeout = atof(optarg); break;
            case 's': options.is_sse = 1; break;
            case 'e': options.expected_events = atoi(optarg); break;
            case 'x': options.expected_text = optarg; break;
            case 'z': options.ramp = atof(optarg); break;
            case 'H': add_header(optarg); break;
            default: exit(2);
        }
    }
    // An open loop sends all that its schedule holds, also what came due while no connection was free.
    if (options.rate && !options.requests) options.requests = options.rate * options.seconds;
    if (!options.port || !options.body_file || options.connections < 1 ||
        (!options.requests && !options.seconds)) {
        fprintf(stderr, "usage: load -p PORT -b BODY_FILE -c CONNECTIONS (-d SECONDS | -n REQUESTS)\n");
        exit(2);
    }
}

int main(int count, char **arguments) {
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // never outlive the benchmark
    prctl(PR_SET_TIMERSLACK, 1000);    // an open loop keeps its schedule to the microsecond
    read_options(count, arguments);
    build_request();
    address = (struct sockaddr_in){.sin_family = AF_INET,
                                   .sin_port = htons(options.port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    connections = calloc(options.connections, sizeof *connections);
    if (epoll_fd < 0 || !connections) die("start");
    for (int i = 0; i < options.connections; i++)
        if (open_connection(&connections[i])) die("connect");
    run();
    print_figures(&seen, last_reply_ns > begin_ns ? (last_reply_ns - begin_ns) / 1e9 : 1e-9);
    return 0;
}
