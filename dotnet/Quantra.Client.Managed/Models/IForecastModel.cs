namespace Quantra.Client.Managed;

/// <summary>A loaded version of a model, with one network or several. Thread-safe.</summary>
internal interface IForecastModel
{
    string Name { get; }

    int Version { get; }

    /// <summary>The kind of network, or "ensemble".</summary>
    string Kind { get; }

    /// <summary>SHA-256 of the weights.</summary>
    string WeightsHash { get; }

    /// <summary>SHA-256 of the manifest, which identifies the artifact.</summary>
    string ManifestHash { get; }

    /// <summary>Forecasts one request.</summary>
    /// <param name="request">The request.</param>
    /// <param name="now">The present.</param>
    /// <exception cref="QuantraException">The request is invalid.</exception>
    Forecast Predict(PredictionRequest request, DateTimeOffset now);

    /// <summary>Explains numbers of one forecast.</summary>
    /// <param name="request">The request.</param>
    /// <param name="now">The present.</param>
    /// <param name="limit">Checked between forward passes.</param>
    /// <returns>One attribution per target.</returns>
    /// <exception cref="QuantraException">
    /// The request is invalid. EXPLAIN_UNSUPPORTED: the method has no such detail. ARTIFACT_INVALID: the recorded explanation differs.
    /// </exception>
    Attribution[] Explain(ManyExplanationsRequest request, DateTimeOffset now, CallLimit limit);

    /// <summary>Describes the model.</summary>
    ModelInfo Info(IReadOnlyList<string> aliases, bool isDefault);
}
