using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting;

/// <summary>Which server a client of a host calls, and how.</summary>
/// <remarks>All but <see cref="Client"/> can also be set by a section of the configuration.</remarks>
public sealed class HostedClientOptions
{
    /// <summary>Where the server is, such as http://127.0.0.1:50051; either this or <see cref="Server"/> must be set.</summary>
    public Uri? Address { get; set; }

    /// <summary>The name of a server of this host, as AddQuantraServer has it; "" = the one without a name; null = another server.</summary>
    public string? Server { get; set; }

    /// <summary>All options of the client. The properties below are parts of it, for short and for a configuration.</summary>
    /// <remarks>
    /// A client certificate, for example, is set by <c>o.Client = o.Client with { ClientCertificate = certificate }</c>. Without a
    /// LoggerFactory, that of the host is used.
    /// </remarks>
    public QuantraClientOptions Client { get; set; } = new();

    /// <inheritdoc cref="QuantraClientOptions.Timeout"/>
    public TimeSpan Timeout
    {
        get => Client.Timeout;
        set => Client = Client with { Timeout = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.GraceTime"/>
    public TimeSpan GraceTime
    {
        get => Client.GraceTime;
        set => Client = Client with { GraceTime = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.MaxMessageBytes"/>
    public int MaxMessageBytes
    {
        get => Client.MaxMessageBytes;
        set => Client = Client with { MaxMessageBytes = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.MaxRequestBytes"/>
    public int MaxRequestBytes
    {
        get => Client.MaxRequestBytes;
        set => Client = Client with { MaxRequestBytes = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.MaxAttempts"/>
    public int MaxAttempts
    {
        get => Client.MaxAttempts;
        set => Client = Client with { MaxAttempts = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.ConnectTimeout"/>
    public TimeSpan ConnectTimeout
    {
        get => Client.ConnectTimeout;
        set => Client = Client with { ConnectTimeout = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.PingInterval"/>
    public TimeSpan PingInterval
    {
        get => Client.PingInterval;
        set => Client = Client with { PingInterval = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.PingTimeout"/>
    public TimeSpan PingTimeout
    {
        get => Client.PingTimeout;
        set => Client = Client with { PingTimeout = value };
    }

    /// <inheritdoc cref="QuantraClientOptions.AuthorityFile"/>
    public string? AuthorityFile
    {
        get => Client.AuthorityFile;
        set => Client = Client with { AuthorityFile = value };
    }

    /// <summary>
    /// The token to send with each call; null = that of <see cref="Client"/>, or else of the environment's QUANTRA_TOKEN. Keep it in user
    /// secrets or a variable rather than in a file of the program.
    /// </summary>
    /// <remarks>One that changes is given by <c>o.Client = o.Client with { Token = … }</c>.</remarks>
    public string? Token { get; set; }

    /// <summary>The client's options, with the host's log and the token.</summary>
    internal QuantraClientOptions ToClientOptions(ILoggerFactory? loggers) => Client with
    {
        LoggerFactory = Client.LoggerFactory ?? loggers,
        Token = Token is { } token ? _ => new ValueTask<string?>(token) : Client.Token,
    };
}
