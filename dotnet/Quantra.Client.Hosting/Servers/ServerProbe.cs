using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Hosting.Health;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Asks one server process whether it is well, over a connection of its own.</summary>
internal sealed class ServerProbe : IDisposable
{
    private readonly GrpcChannel _channel;
    private readonly Health.Health.HealthClient _health;
    private readonly TimeSpan _timeout;
    private readonly TimeProvider _time;

    /// <param name="port">On 127.0.0.1.</param>
    /// <param name="timeout">Longest wait for an answer.</param>
    /// <param name="time">Of that wait.</param>
    [SuppressMessage("Reliability", "CA2000:Dispose objects before losing scope", Justification = "the channel disposes its handler")]
    public ServerProbe(int port, TimeSpan timeout, TimeProvider time)
    {
        (_timeout, _time) = (timeout, time);
        _channel = GrpcChannel.ForAddress(FormattableString.Invariant($"http://127.0.0.1:{port}"), new GrpcChannelOptions
        {
            HttpHandler = new SocketsHttpHandler { UseProxy = false },
            DisposeHttpClient = true,
        });
        _health = new Health.Health.HealthClient(_channel);
    }

    /// <summary>Asks once.</summary>
    /// <param name="cancellationToken">Ends the wait.</param>
    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<ProbeAnswer> AskAsync(CancellationToken cancellationToken)
    {
        using var late = new CancellationTokenSource(_timeout, _time);
        using var either = CancellationTokenSource.CreateLinkedTokenSource(late.Token, cancellationToken);
        try
        {
            var told = await _health.CheckAsync(new HealthCheckRequest(), cancellationToken: either.Token).ConfigureAwait(false);
            return told.Status == HealthCheckResponse.Types.ServingStatus.Serving
                ? ProbeAnswer.Well
                : new ProbeAnswer(IsAnswered: true, $"it says that it is {told.Status}");
        }
        catch (RpcException error)
        {
            cancellationToken.ThrowIfCancellationRequested();
            return new ProbeAnswer(IsAnswered: false, late.IsCancellationRequested
                ? FormattableString.Invariant($"it did not say within {_timeout.TotalSeconds:g} s that it is well")
                : $"it could not be asked whether it is well ({error.Status.Detail})");
        }
    }

    /// <inheritdoc/>
    public void Dispose() => _channel.Dispose();
}
