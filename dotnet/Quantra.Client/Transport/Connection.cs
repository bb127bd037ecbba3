using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Wire;

namespace Quantra.Client.Transport;

/// <summary>What a client calls through: a channel of its own or of the caller's, and the calls that are under way.</summary>
internal sealed class Connection : IAsyncDisposable
{
    private readonly GrpcChannel? _own;
    private readonly TimeSpan _graceTime;

    private Connection(CallInvoker invoker, Caller caller, TimeSpan graceTime, GrpcChannel? own = null) =>
        (Invoker, Caller, _graceTime, _own) = (invoker, caller, graceTime, own);

    /// <summary>For stubs.</summary>
    public CallInvoker Invoker { get; }

    /// <summary>Makes the calls.</summary>
    public Caller Caller { get; }

    /// <summary>Those under way.</summary>
    public CallsUnderWay Calls { get; } = new();

    /// <summary>Opens a channel; nothing is sent before the first call.</summary>
    /// <param name="address">Of the server.</param>
    /// <param name="options">Of the client.</param>
    /// <param name="service">Whose calls they are.</param>
    /// <param name="repeats">Whether a call may be made a second time.</param>
    /// <exception cref="ArgumentException">The address or the options cannot be.</exception>
    /// <exception cref="IOException">The authorities' file cannot be read.</exception>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the connection disposes it")]
    public static Connection To(Uri address, QuantraClientOptions options, string service, bool repeats)
    {
        ArgumentNullException.ThrowIfNull(address);
        ArgumentNullException.ThrowIfNull(options);
        var server = new ServerAddress(address);
        var channel = OwnChannel.Open(server, options);
        var caller = new Caller(options, service, CallToken.Of(server, options), server.Text, repeats);
        return new(channel.CreateCallInvoker(), caller, options.GraceTime, channel);
    }

    /// <summary>Uses a channel that stays the caller's.</summary>
    public static Connection Over(GrpcChannel channel, QuantraClientOptions options, string service)
    {
        ArgumentNullException.ThrowIfNull(channel);
        ArgumentNullException.ThrowIfNull(options);
        return Over(channel.CreateCallInvoker(), options, service, channel.Target);
    }

    /// <summary>Uses an invoker that stays the caller's.</summary>
    public static Connection Over(CallInvoker invoker, QuantraClientOptions options, string service, string target = "the server")
    {
        ArgumentNullException.ThrowIfNull(invoker);
        ArgumentNullException.ThrowIfNull(options);
        return new(invoker, new Caller(options, service, CallToken.None, target, repeats: false), options.GraceTime);
    }

    /// <summary>Takes no more calls, waits for those under way as long as the grace time, and closes the channel if it is its own.</summary>
    /// <returns>A task that completes when no call is under way any more.</returns>
    public async ValueTask DisposeAsync()
    {
        await Calls.CloseAsync(_graceTime).ConfigureAwait(false);
        _own?.Dispose();
    }
}
