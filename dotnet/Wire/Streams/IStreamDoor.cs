namespace Quantra.Client.Wire;

/// <summary>What streams and sessions need from the way to a predictor.</summary>
internal interface IStreamDoor
{
    /// <summary>Timeouts and bounds.</summary>
    CallSettings Settings { get; }

    /// <summary>What may be seen of it all.</summary>
    IStreamWatch Watch { get; }

    /// <summary>Begins a call of PredictStream; whether anybody is there, its first message tells.</summary>
    /// <param name="cancellationToken">Ends the call, at any time.</param>
    /// <exception cref="QuantraException">It cannot be begun.</exception>
    Task<IConversation> OpenAsync(CancellationToken cancellationToken);

    /// <summary>Describes one version of a model.</summary>
    /// <exception cref="QuantraException">The call failed.</exception>
    Task<V1.ModelInfo> GetModelAsync(string reference, CancellationToken cancellationToken);
}
