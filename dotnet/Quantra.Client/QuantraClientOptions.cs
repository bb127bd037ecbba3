using System.Security.Cryptography.X509Certificates;
using Microsoft.Extensions.Logging;
using Quantra.Client.Wire;

namespace Quantra.Client;

/// <summary>Timeout, limits, retries and credentials of a <see cref="QuantraClient"/>.</summary>
public sealed record QuantraClientOptions
{
    private readonly TimeSpan _timeout = CallTimeout.Default;
    private readonly TimeSpan _graceTime = TimeSpan.FromSeconds(5);
    private readonly int _maxMessageBytes = 64 << 20;
    private readonly int _maxRequestBytes = 16 << 20;
    private readonly int _maxInFlight = CallSettings.DefaultMaxInFlight;
    private readonly int _maxAttempts = 8;
    private readonly TimeSpan _connectTimeout = TimeSpan.FromSeconds(10);
    private readonly TimeSpan _pingInterval = TimeSpan.FromSeconds(20);
    private readonly TimeSpan _pingTimeout = TimeSpan.FromSeconds(5);

    /// <summary>
    /// Longest wait for a response, over all attempts; in a stream or session, per request. While you watch the events of a ledger, how long the
    /// server may be unavailable.
    /// </summary>
    /// <value>Positive, at most a day; 30 seconds by default.</value>
    public TimeSpan Timeout
    {
        get => _timeout;
        init => _timeout = CallTimeout.Validate(value);
    }

    /// <summary>How long disposal waits for running calls before it cancels them.</summary>
    /// <value>Positive, at most a day; 5 seconds by default.</value>
    public TimeSpan GraceTime
    {
        get => _graceTime;
        init => _graceTime = CallTimeout.Validate(value);
    }

    /// <summary>Largest response that the client accepts. Applies to a client with its own channel.</summary>
    /// <value>Bytes, positive; 64 MiB by default.</value>
    public int MaxMessageBytes
    {
        get => _maxMessageBytes;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _maxMessageBytes = value;
        }
    }

    /// <summary>
    /// Largest request that the client sends. Panels are first trimmed to the bars that the model reads. A larger panel is split into
    /// several calls. If it cannot be split, as for a model that looks across symbols, the call fails with REQUEST_TOO_LARGE.
    /// </summary>
    /// <value>Bytes, positive; 16 MiB by default, as in the server.</value>
    public int MaxRequestBytes
    {
        get => _maxRequestBytes;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _maxRequestBytes = value;
        }
    }

    /// <summary>Largest number of requests of one stream whose results you have not read yet.</summary>
    /// <value>At least 1; 32 by default. A server accepts 128 per stream at once; more wait.</value>
    public int MaxInFlight
    {
        get => _maxInFlight;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _maxInFlight = value;
        }
    }

    /// <summary>
    /// Largest number of attempts per call, including the first. Applies to a client with its own channel. A call is repeated while the
    /// server is unreachable (UNAVAILABLE) or overloaded (QUEUE_FULL, with a retry delay). All attempts share <see cref="Timeout"/>.
    /// </summary>
    /// <value>
    /// At least 1, at most 1,000; 8 by default. If no server responds, 8 attempts take about 1.5 seconds, and 1,000 over eight minutes.
    /// </value>
    /// <remarks>
    /// Repeating is safe because predictions and explanations have no side effects. If a stream breaks, another call continues with the
    /// unanswered requests. The stream fails when that many calls in a row break without an answer. The events of a ledger are not limited by this
    /// number, except that 1 means no other call.
    /// </remarks>
    public int MaxAttempts
    {
        get => _maxAttempts;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            ArgumentOutOfRangeException.ThrowIfGreaterThan(value, 1_000);
            _maxAttempts = value;
        }
    }

    /// <summary>Longest wait for a connection, TLS included. Applies to a client with its own channel.</summary>
    /// <value>Positive, at most a day; 10 seconds by default.</value>
    public TimeSpan ConnectTimeout
    {
        get => _connectTimeout;
        init => _connectTimeout = CallTimeout.Validate(value);
    }

    /// <summary>
    /// How long a connection may be idle before the client pings the server, which detects dead connections, for example after the
    /// computer slept. Applies to a client with its own channel.
    /// </summary>
    /// <value>At least a second, at most a day; 20 seconds by default.</value>
    public TimeSpan PingInterval
    {
        get => _pingInterval;
        init => _pingInterval = CheckPing(value);
    }

    /// <summary>Longest wait for the response to a ping. After that, the calls on the connection fail with UNAVAILABLE and the next call reconnects.</summary>
    /// <value>At least a second, at most a day; 5 seconds by default.</value>
    public TimeSpan PingTimeout
    {
        get => _pingTimeout;
        init => _pingTimeout = CheckPing(value);
    }

    /// <summary>
    /// PEM file of the certificate authorities to trust; null = those of the operating system. Applies to a client with its own channel
    /// to an https address.
    /// </summary>
    /// <remarks>Read when the client is created. <c>quantra certs</c> creates one for development, ca.pem.</remarks>
    public string? AuthorityFile { get; init; }

    /// <summary>Client certificate with its private key, for servers that require one; null = none.</summary>
    /// <remarks>The caller keeps ownership. On Windows, load it from a .pfx file. If it comes from PEM files, export and reload it once.</remarks>
    public X509Certificate2? ClientCertificate { get; init; }

    /// <summary>
    /// Returns the bearer token, and is called before each call; null or "" = no token. If the property is null, the client uses the
    /// environment variable QUANTRA_TOKEN. Applies to a client with its own channel.
    /// </summary>
    /// <remarks>Without TLS, a token is sent only to loopback addresses and Unix sockets.</remarks>
    public Func<CancellationToken, ValueTask<string?>>? Token { get; init; }

    /// <summary>Adjusts the HTTP handler after all other options; null = no changes. Applies to a client with its own channel.</summary>
    /// <remarks>Use it for proxies, custom TLS, or a custom ConnectCallback.</remarks>
    public Action<SocketsHttpHandler>? ConfigureHandler { get; init; }

    /// <summary>Logs calls and, in a client with its own channel, gRPC; null = no logs.</summary>
    /// <remarks>Logs have methods, models, reasons and times, but no bars and no tokens.</remarks>
    public ILoggerFactory? LoggerFactory { get; init; }

    /// <summary>Returns the value if SocketsHttpHandler accepts it and it is at most a day.</summary>
    private static TimeSpan CheckPing(TimeSpan value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(value, TimeSpan.FromSeconds(1));
        return CallTimeout.Validate(value);
    }
}
