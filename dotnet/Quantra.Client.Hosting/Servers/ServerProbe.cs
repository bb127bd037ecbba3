using System.Diagnostics.CodeAnalysis;
using Grpc.Core;
using Grpc.Net.Client;
using Quantra.Client.Hosting.Health;

namespace Quantra.Client.Hosting.Servers;

/// <summary>Checks the health of one server process over a separate connection.</summary>
internal sealed class ServerProbe : IDisposable
{
    private readonly GrpcChannel _channel;
    private readonly Health.Health.HealthClient _health;
    private readonly TimeSpan _timeout;
    private readonly TimeProvider _time;

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

    /// <exception cref="OperationCanceledException">The token was cancelled.</exception>
    public async Task<ProbeResult> CheckAsync(CancellationToken cancellationToken)
    {
        using var timeout = new CancellationTokenSource(_timeout, _time);
        using var linked = CancellationTokenSource.CreateLinkedTokenSource(timeout.Token, cancellationToken);
        try
        {
            var response = await _health.CheckAsync(new HealthCheckRequest(), cancellationToken: linked.Token).ConfigureAwait(false);
            return response.Status == HealthCheckResponse.Types.ServingStatus.Serving
                ? ProbeResult.Healthy
                : new ProbeResult(IsAnswered: true, $"its health status is {response.Status}");
        }
        catch (RpcException error)
        {
            cancellationToken.ThrowIfCancellationRequested();
            return new ProbeResult(IsAnswered: false, timeout.IsCancellationRequested
                ? FormattableString.Invariant($"no response to a health check within {_timeout.TotalSeconds:g} s")
                : $"the health check failed ({error.Status.Detail})");
        }
    }

    /// <inheritdoc/>
    public void Dispose() => _channel.Dispose();
}
