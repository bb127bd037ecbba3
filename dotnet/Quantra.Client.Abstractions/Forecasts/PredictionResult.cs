namespace Quantra.Client;

/// <summary>The result of one request: a forecast or an error, never both.</summary>
/// <param name="RequestId">Id of the request.</param>
/// <param name="Forecast">The forecast, or null.</param>
/// <param name="Error">The error, or null.</param>
public sealed record PredictionResult(string RequestId, Forecast? Forecast, QuantraError? Error)
{
    /// <summary>Returns the forecast, or throws the error.</summary>
    /// <returns>The forecast.</returns>
    /// <exception cref="QuantraException">The request was rejected.</exception>
    public Forecast GetForecast() =>
        Forecast ?? throw (Error ?? throw new InvalidOperationException("a result must have a forecast or an error")).ToException();

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "first: small@1 as of 2013-03-01, 2 symbols".</returns>
    public override string ToString() => (RequestId.Length > 0 ? $"{RequestId}: " : "") + (Forecast?.Title() ?? Error?.ToString());
}
