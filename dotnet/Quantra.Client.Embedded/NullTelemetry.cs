using Quantra.Client.Wire;

namespace Quantra.Client.Embedded;

/// <summary>Records nothing: calls inside this process have no telemetry.</summary>
internal sealed class NullTelemetry : IStreamTelemetry, ICallTelemetry
{
    /// <inheritdoc/>
    public ICallTelemetry BeginStream() => this;

    /// <inheritdoc/>
    public ICallTelemetry BeginSessionRequest(string model) => this;

    /// <inheritdoc/>
    public void RequestCompleted(string model, TimeSpan duration, string? reason)
    {
    }

    /// <inheritdoc/>
    public void StreamResumed(string reason)
    {
    }

    /// <inheritdoc/>
    public void SessionReopened(string session, string model, string reason)
    {
    }

    /// <inheritdoc/>
    public void Retry()
    {
    }

    /// <inheritdoc/>
    public void Succeed()
    {
    }

    /// <inheritdoc/>
    public void Fail(string reason)
    {
    }
}
