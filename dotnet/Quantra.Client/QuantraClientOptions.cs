namespace Quantra.Client;

/// <summary>Timeout and limits of a <see cref="QuantraClient"/>.</summary>
public sealed record QuantraClientOptions
{
    private readonly TimeSpan _timeout = CallTimeout.Default;
    private readonly int _maxMessageBytes = 64 << 20;

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
}
