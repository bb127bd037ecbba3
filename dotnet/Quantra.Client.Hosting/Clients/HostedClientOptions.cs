using Microsoft.Extensions.Logging;

namespace Quantra.Client.Hosting;

/// <summary>Options of a client in a host.</summary>
/// <remarks>A configuration section can set all properties except <see cref="Client"/>.</remarks>
public sealed class HostedClientOptions
{
    /// <summary>Address of the server, for example http://127.0.0.1:50051. Set either this or <see cref="Server"/>.</summary>
    public Uri? Address { get; set; }

    /// <summary>Name of a server in this host, as passed to AddQuantraServer; "" = the unnamed one; null = use <see cref="Address"/>.</summary>
    public string? Server { get; set; }

    /// <summary>Address of the server's admin calls, for example http://127.0.0.1:50052; null = those of <see cref="Server"/>, if it accepts them.</summary>
    /// <remarks>The admin calls have the same options as the others. Their token needs the role admin.</remarks>
    public Uri? AdminAddress { get; set; }

    /// <summary>All options of the client. The properties below set parts of it.</summary>
    /// <remarks>
    /// To set a client certificate, for example, write <c>o.Client = o.Client with { ClientCertificate = certificate }</c>. Without a
    /// LoggerFactory, the client uses that of the host.
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
    /// Bearer token for each call; null = that of <see cref="Client"/>, or else of the environment variable QUANTRA_TOKEN. Keep it in user
    /// secrets or an environment variable rather than in a file.
    /// </summary>
    /// <remarks>For a token that changes, set <c>o.Client = o.Client with { Token = … }</c>.</remarks>
    public string? Token { get; set; }

    /// <summary>The client of a name, for messages.</summary>
    internal static string Describe(string? name) => string.IsNullOrEmpty(name) ? "the unnamed client" : $"client '{name}'";

    /// <summary>Returns the client's options with the host's logger factory and the token.</summary>
    internal QuantraClientOptions ToClientOptions(ILoggerFactory? loggers) => Client with
    {
        LoggerFactory = Client.LoggerFactory ?? loggers,
        Token = Token is { } token ? _ => new ValueTask<string?>(token) : Client.Token,
    };
}
