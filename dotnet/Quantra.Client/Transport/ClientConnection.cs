using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>The channel of a client, its own or the caller's, and the running calls.</summary>
internal sealed class ClientConnection : IAsyncDisposable
{
    private readonly GrpcChannel? _own;
    private readonly TimeSpan _graceTime;

    private ClientConnection(CallInvoker invoker, CallExecutor executor, TimeSpan graceTime, GrpcChannel? own = null) =>
        (Invoker, Executor, _graceTime, _own) = (invoker, executor, graceTime, own);

    public CallInvoker Invoker { get; }

    public CallExecutor Executor { get; }

    public ActiveCalls Calls { get; } = new();

    /// <summary>Creates a connection with its own channel. The first call connects.</summary>
    /// <exception cref="ArgumentException">The address or an option is invalid.</exception>
    /// <exception cref="IOException">The authority file cannot be read.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the connection disposes it")]
    public static ClientConnection To(Uri address, QuantraClientOptions options, string service, bool repeats)
    {
        ArgumentNullException.ThrowIfNull(address);
        ArgumentNullException.ThrowIfNull(options);
        var server = new ServerAddress(address);
        var channel = ChannelFactory.Open(server, options);
        var executor = new CallExecutor(options, service, BearerToken.Create(server, options), server.Text, repeats);
        return new(channel.CreateCallInvoker(), executor, options.GraceTime, channel);
    }

    /// <summary>Uses the caller's channel.</summary>
    public static ClientConnection Over(GrpcChannel channel, QuantraClientOptions options, string service)
    {
        ArgumentNullException.ThrowIfNull(channel);
        ArgumentNullException.ThrowIfNull(options);
        return Over(channel.CreateCallInvoker(), options, service, channel.Target);
    }

    /// <summary>Uses the caller's invoker.</summary>
    public static ClientConnection Over(CallInvoker invoker, QuantraClientOptions options, string service, string target = "the server")
    {
        ArgumentNullException.ThrowIfNull(invoker);
        ArgumentNullException.ThrowIfNull(options);
        return new(invoker, new CallExecutor(options, service, BearerToken.None, target, repeats: false), options.GraceTime);
    }

    /// <summary>Rejects new calls, waits for running calls up to the grace time, and closes an own channel.</summary>
    public async ValueTask DisposeAsync()
    {
        await Calls.CloseAsync(_graceTime).ConfigureAwait(false);
        _own?.Dispose();
    }
}
