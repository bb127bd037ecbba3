using Quantra.Client.Wire;

namespace Quantra.Client;

/// <summary>Timeout and limits of a <see cref="QuantraClient"/>.</summary>
public sealed record QuantraClientOptions
{
    private readonly TimeSpan _timeout = CallTimeout.Default;
    private readonly int _maxMessageBytes = 64 << 20;
    private readonly TimeSpan _connectTimeout = TimeSpan.FromSeconds(10);
    private readonly TimeSpan _pingInterval = TimeSpan.FromSeconds(20);
    private readonly TimeSpan _pingTimeout = TimeSpan.FromSeconds(5);

    /// <summary>Longest wait for an answer.</summary>
    /// <value>Positive, at most a day; 30 seconds by default.</value>
    public TimeSpan Timeout
    {
        get => _timeout;
        init => _timeout = CallTimeout.Checked(value);
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

    /// <summary>The value itself, if it is one that SocketsHttpHandler takes, and at most a day.</summary>
    private static TimeSpan CheckedPing(TimeSpan value)
    {
        ArgumentOutOfRangeException.ThrowIfLessThan(value, TimeSpan.FromSeconds(1));
        return CallTimeout.Checked(value);
    }
}
