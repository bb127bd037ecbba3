namespace Quantra.Client.Wire;

/// <summary>Carries streams and sessions to a predictor.</summary>
internal interface IStreamTransport
{
    CallSettings Settings { get; }

    IStreamTelemetry Telemetry { get; }

    /// <summary>Starts a PredictStream call. Connection errors surface with the first message.</summary>
    /// <exception cref="QuantraException">The call cannot be started.</exception>
    Task<IDuplexCall> OpenAsync(CancellationToken cancellationToken);

    /// <summary>Describes one version of a model.</summary>
    /// <exception cref="QuantraException">The call failed.</exception>
    Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken);
}
