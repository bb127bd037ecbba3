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
    private readonly int _maxInFlight = CallSettings.DefaultInFlight;
    private readonly int _maxAttempts = 8;
    private readonly TimeSpan _connectTimeout = TimeSpan.FromSeconds(10);
    private readonly TimeSpan _pingInterval = TimeSpan.FromSeconds(20);
    private readonly TimeSpan _pingTimeout = TimeSpan.FromSeconds(5);

    /// <summary>Longest wait for an answer, over all attempts; of a stream and of a session, for the answer to each request.</summary>
    /// <value>Positive, at most a day; 30 seconds by default.</value>
    public TimeSpan Timeout
    {
        get => _timeout;
        init => _timeout = CallTimeout.Checked(value);
    }

    /// <summary>How long the client, once it is disposed, waits for calls that are under way before it breaks them.</summary>
    /// <value>Positive, at most a day; 5 seconds by default.</value>
    public TimeSpan GraceTime
    {
        get => _graceTime;
        init => _graceTime = CallTimeout.Checked(value);
    }

    /// <summary>Largest answer that is accepted, by a client that opens its own channel.</summary>
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
    /// Largest request that is sent. A panel that is larger, even without the bars that its model does not read, goes in several calls;
    /// where it cannot, as of a model that looks across symbols, it is refused before it leaves, as REQUEST_TOO_LARGE.
    /// </summary>
    /// <value>Bytes, positive; 16 MiB by default, which is what a server accepts unless it was told otherwise.</value>
    public int MaxRequestBytes
    {
        get => _maxRequestBytes;
        init
        {
            ArgumentOutOfRangeException.ThrowIfLessThan(value, 1);
            _maxRequestBytes = value;
        }
    }

    /// <summary>How many requests of one stream may be under way, those included whose results were not read yet.</summary>
    /// <value>At least 1; 32 by default. A server takes 128 of one stream at once, and lets others wait.</value>
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
    /// How often a call may be tried, by a client that opens its own channel: while the server is not there (UNAVAILABLE) or has
    /// too much to do (QUEUE_FULL), which then says when to come again. All attempts share the call's <see cref="Timeout"/>.
    /// </summary>
    /// <value>
    /// 1 = only once; at least 1, at most 1,000, which takes over eight minutes if nobody answers; 8 by default, over about a second and a half.
    /// </value>
    /// <remarks>
    /// Nothing is done twice by it: forecasts and explanations change nothing. A stream that breaks goes on over another call with what
    /// has no answer yet, unless it breaks as often without any answer; a request of it that was refused as QUEUE_FULL is tried as often.
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

    /// <summary>Longest wait for a connection, TLS included, by a client that opens its own channel.</summary>
    /// <value>Positive, at most a day; 10 seconds by default.</value>
    public TimeSpan ConnectTimeout
    {
        get => _connectTimeout;
        init => _connectTimeout = CallTimeout.Checked(value);
    }

    /// <summary>
    /// How long a connection may be silent until the server is asked whether it is there, by a client that opens its own channel;
    /// so a connection is noticed that died without a word, as when a computer slept.
    /// </summary>
    /// <value>At least a second, at most a day; 20 seconds by default.</value>
    public TimeSpan PingInterval
    {
        get => _pingInterval;
        init => _pingInterval = CheckedPing(value);
    }

    /// <summary>Longest wait for the answer to that; after it the calls of the connection are UNAVAILABLE, and the next opens another.</summary>
    /// <value>At least a second, at most a day; 5 seconds by default.</value>
    public TimeSpan PingTimeout
    {
        get => _pingTimeout;
        init => _pingTimeout = CheckedPing(value);
    }

    /// <summary>
    /// PEM file of the authorities that may vouch for the server, by a client that opens its own channel to an https address;
    /// null = those that this machine trusts.
    /// </summary>
    /// <remarks>Read when the client is made. <c>quantra certs</c> makes one for development, ca.pem.</remarks>
    public string? AuthorityFile { get; init; }

    /// <summary>The certificate to show, with its private key, where a server asks for one; null = none.</summary>
    /// <remarks>It stays the caller's. For Windows, load it from a .pfx, or export and load it once if it came from PEM files.</remarks>
    public X509Certificate2? ClientCertificate { get; init; }

    /// <summary>
    /// The token to send with each call, asked for anew each time, so that it may change; by a client that opens its own channel.
    /// Null or "" from it = none. Null instead of it = the environment's QUANTRA_TOKEN, if there is one.
    /// </summary>
    /// <remarks>Over plain text it is only sent within this machine: to loopback addresses and Unix sockets.</remarks>
    public Func<CancellationToken, ValueTask<string?>>? Token { get; init; }

    /// <summary>Changes the handler of the connections last of all, by a client that opens its own channel; null = as it is.</summary>
    /// <remarks>For proxies, for TLS of one's own kind, or for another way to connect, through its ConnectCallback.</remarks>
    public Action<SocketsHttpHandler>? ConfigureHandler { get; init; }

    /// <summary>Logs calls and, by a client that opens its own channel, what gRPC does; null = nothing.</summary>
    /// <remarks>Methods, models, reasons and times; neither the numbers of bars nor tokens.</remarks>
    public ILoggerFactory? LoggerFactory { get; init; }

    /// <summary>The value itself, if it is one that SocketsHttpHandler takes, and at most a day.</summary>
    private static TimeSpan CheckedPing(TimeSpan value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(value, TimeSpan.FromSeconds(1));
        return CallTimeout.Checked(value);
    }
}
