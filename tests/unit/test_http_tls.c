/* The HTTP client over TLS: whom it trusts, what it shows, and what counts as sent. Certificates are made on the spot.
 */
#include "http_fixture.h"

#include <signal.h>
#include <sys/wait.h>

static char dir[] = "/tmp/http-tls-XXXXXX";
static char ca[64], other_ca[64], client_cert[64], client_key[64], server_cert[64], server_key[64], wrong_cert[64],
    wrong_key[64];

static void path_of(char out[64], const char *name)
{
    snprintf(out, 64, "%s/%s", dir, name);
}

static const char make_certificates[] =
    "set -e; cd \"$0\"; q='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'\n"
    "for ca in ca other; do openssl req -x509 $q -subj /CN=$ca -keyout $ca.key -out $ca.pem "
    "-addext basicConstraints=critical,CA:TRUE; done\n"
    "leaf() { openssl req $q -subj /CN=$1 -keyout $1.key -out $1.csr; echo \"$2\" > $1.ext;\n"
    "openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $1.ext -out $1.pem; }\n"
    "leaf server subjectAltName=IP:127.0.0.1; leaf wrong subjectAltName=DNS:elsewhere.invalid\n"
    "leaf client extendedKeyUsage=clientAuth\n";

static int make_dir(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        char log[80];
        snprintf(log, sizeof(log), "%s/log", dir);
        if (freopen(log, "w", stdout) == NULL || dup2(1, 2) < 0)
            _exit(1);
        execlp("bash", "bash", "-c", make_certificates, dir, (char *)NULL);
        _exit(1);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return -1;
    path_of(ca, "ca.pem");
    path_of(other_ca, "other.pem");
    path_of(server_cert, "server.pem");
    path_of(server_key, "server.key");
    path_of(wrong_cert, "wrong.pem");
    path_of(wrong_key, "wrong.key");
    path_of(client_cert, "client.pem");
    path_of(client_key, "client.key");
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-r", dir, (char *)NULL);
        _exit(1);
    }
    int status = 0;
    return waitpid(pid, &status, 0) == pid && status == 0 ? 0 : -1;
}

static SSL_CTX *tls_of(const char *cert, const char *key)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    assert_int_equal(SSL_CTX_use_certificate_file(tls, cert, SSL_FILETYPE_PEM), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey_file(tls, key, SSL_FILETYPE_PEM), 1);
    return tls;
}

static void client_with(http_client_options_t options)
{
    if (client != NULL)
        http_client_destroy(client);
    if (options.connect_ms == 0)
        options.connect_ms = 5000;
    options.header_max = 16 * 1024;
    client_open(&options);
}

static void answer_all(conn_t *conn)
{
    while (read_request(conn))
        if (!say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
            return;
}

static void trusted(void **state)
{
    (void)state;
    SSL_CTX *tls = tls_of(server_cert, server_key);
    server_t *s = server_start(answer_all, NULL, NULL, tls);
    client_with((http_client_options_t){.ca_file = ca});
    http_request_t request = get(s, "/");
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_DONE, true);
    assert_string_equal(r.body, "hello");
    result_free(&r);
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 1);
    request.method = "POST";
    request.idempotent = false;
    expect(&request, HTTP_DONE, true);
    assert_int_equal(atomic_load(&s->connections), 2);
    server_stop(s);
    SSL_CTX_free(tls);
}

/* The handshake fails, so nothing left. */
static void refused_by_us(const char *cert, const char *key, http_client_options_t options)
{
    SSL_CTX *tls = tls_of(cert, key);
    server_t *s = server_start(answer_all, NULL, NULL, tls);
    client_with(options);
    http_request_t request = get(s, "/");
    request.method = "POST";
    request.idempotent = false;
    expect(&request, HTTP_NOT_SENT, false);
    assert_int_equal(atomic_load(&s->requests), 0);
    server_stop(s);
    SSL_CTX_free(tls);
}

static void untrusted(void **state)
{
    (void)state;
    refused_by_us(server_cert, server_key, (http_client_options_t){.ca_file = other_ca});
    refused_by_us(server_cert, server_key,
                  (http_client_options_t){.ca_file = NULL}); /* the system's know nothing of it */
    refused_by_us(server_cert, server_key, (http_client_options_t){.ca_file = "/nonexistent.pem"});
    refused_by_us(server_cert, server_key,
                  (http_client_options_t){.ca_file = ca, .cert_file = "/nonexistent.pem", .key_file = client_key});
}

static void wrong_host(void **state)
{
    (void)state;
    refused_by_us(wrong_cert, wrong_key, (http_client_options_t){.ca_file = ca});
}

static void old_tls_is_refused(void **state)
{
    (void)state;
    SSL_CTX *tls = tls_of(server_cert, server_key);
    SSL_CTX_set_security_level(tls, 0);
    SSL_CTX_set_min_proto_version(tls, TLS1_VERSION);
    SSL_CTX_set_max_proto_version(tls, TLS1_1_VERSION);
    server_t *s = server_start(answer_all, NULL, NULL, tls);
    client_with((http_client_options_t){.ca_file = ca});
    http_request_t request = get(s, "/");
    expect(&request, HTTP_NOT_SENT, false);
    server_stop(s);
    SSL_CTX_free(tls);
}

static void client_certificates(void **state)
{
    (void)state;
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (int i = 0; i < 2; ++i) {
        SSL_CTX *tls = tls_of(server_cert, server_key);
        SSL_CTX_set_max_proto_version(tls, versions[i]);
        SSL_CTX_set_verify(tls, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        assert_int_equal(SSL_CTX_load_verify_locations(tls, ca, NULL), 1);
        server_t *s = server_start(answer_all, NULL, NULL, tls);
        http_request_t request = get(s, "/");
        client_with((http_client_options_t){.ca_file = ca, .cert_file = client_cert, .key_file = client_key});
        expect(&request, HTTP_DONE, true);
        client_with((http_client_options_t){.ca_file = ca});
        result_t r = fetch(&request);
        /* In TLS 1.3 the client is done before the server looks at its certificate, so the request is on its way. */
        if (versions[i] == TLS1_2_VERSION)
            assert_outcome(&r, HTTP_NOT_SENT, false);
        else
            assert_outcome(&r, HTTP_LOST, true);
        assert_int_equal(atomic_load(&s->requests), 1);
        result_free(&r);
        server_stop(s);
        SSL_CTX_free(tls);
    }
}

static void say_nothing(conn_t *conn)
{
    hold(conn);
}

static void a_handshake_that_stalls(void **state)
{
    (void)state;
    /* A plain server: it reads the hello and stays silent. */
    server_t *s = server_start(say_nothing, NULL, NULL, NULL);
    char url[160];
    snprintf(url, sizeof(url), "https%s/", s->url + 4);
    http_request_t request = get(s, "/");
    request.url = url;
    request.idempotent = false;
    client_with((http_client_options_t){.ca_file = ca, .connect_ms = 200});
    result_t r = fetch(&request);
    assert_outcome(&r, HTTP_NOT_SENT, false);
    assert_true(r.took_ms >= 200 && r.took_ms < 3000);
    result_free(&r);
    client_with((http_client_options_t){.ca_file = ca});
    request.deadline_ms = 200;
    r = fetch(&request);
    assert_outcome(&r, HTTP_TIMED_OUT, false);
    result_free(&r);
    request.deadline_ms = 8000;
    start(&r, &request);
    wait_for(atomic_load(&s->connections) == 3);
    http_call_cancel(r.call);
    wait_for(r.done);
    assert_outcome(&r, HTTP_CANCELED, false);
    result_free(&r);
    server_stop(s);
}

static void speak_plain_text(conn_t *conn)
{
    (void)say(conn, "HTTP/1.1 400 This is not TLS\r\n\r\n");
    hold(conn);
}

static void a_peer_without_tls(void **state)
{
    (void)state;
    server_t *s = server_start(speak_plain_text, NULL, NULL, NULL);
    char url[160];
    snprintf(url, sizeof(url), "https%s/", s->url + 4);
    http_request_t request = get(s, "/");
    request.url = url;
    client_with((http_client_options_t){.ca_file = ca});
    expect(&request, HTTP_NOT_SENT, false);
    server_stop(s);
}

/* A body that lasts to the end of the connection is complete only when TLS says the end is meant. */
static void body_then_close(conn_t *conn)
{
    if (!read_request(conn) || !say(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"))
        return;
    if (conn->server->arg != NULL)
        (void)SSL_shutdown(conn->ssl);
}

static void a_cut_connection_is_not_an_end(void **state)
{
    (void)state;
    SSL_CTX *tls = tls_of(server_cert, server_key);
    for (int clean = 0; clean < 2; ++clean) {
        server_t *s = server_start(body_then_close, clean != 0 ? "clean" : NULL, NULL, tls);
        client_with((http_client_options_t){.ca_file = ca});
        http_request_t request = get(s, "/");
        expect(&request, clean != 0 ? HTTP_DONE : HTTP_LOST, true);
        server_stop(s);
    }
    SSL_CTX_free(tls);
}

static void read_some_and_reset(conn_t *conn)
{
    char some[1000];
    (void)conn_read(conn, some, sizeof(some));
    (void)doze(conn, 50);
    reset(conn);
}

/* OpenSSL writes without MSG_NOSIGNAL unless somebody takes care; this process would die. */
static void a_reset_during_the_upload(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_DFL);
    SSL_CTX *tls = tls_of(server_cert, server_key);
    server_t *s = server_start(read_some_and_reset, NULL, NULL, tls);
    size_t len = 8 * 1024 * 1024;
    char *body = malloc(len);
    memset(body, 'u', len);
    client_with((http_client_options_t){.ca_file = ca});
    http_request_t request = get(s, "/");
    request.method = "PUT";
    request.idempotent = false;
    request.body = body;
    request.body_len = len;
    expect(&request, HTTP_LOST, true);
    free(body);
    server_stop(s);
    SSL_CTX_free(tls);
}

static void close_on_the_second(conn_t *conn)
{
    if (read_request(conn) && say(conn, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
        (void)read_request(conn);
}

static void nothing_is_sent_twice_over_tls(void **state)
{
    (void)state;
    SSL_CTX *tls = tls_of(server_cert, server_key);
    server_t *s = server_start(close_on_the_second, NULL, NULL, tls);
    client_with((http_client_options_t){.ca_file = ca});
    http_request_t request = get(s, "/");
    expect(&request, HTTP_DONE, true);
    expect(&request, HTTP_LOST, true);
    assert_int_equal(atomic_load(&s->requests), 2);
    server_stop(s);
    SSL_CTX_free(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(trusted),
        CASE(untrusted),
        CASE(wrong_host),
        CASE(old_tls_is_refused),
        CASE(client_certificates),
        CASE(a_handshake_that_stalls),
        CASE(a_peer_without_tls),
        CASE(a_cut_connection_is_not_an_end),
        CASE(a_reset_during_the_upload),
        CASE(nothing_is_sent_twice_over_tls),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
