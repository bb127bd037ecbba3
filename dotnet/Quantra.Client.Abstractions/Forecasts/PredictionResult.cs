namespace Quantra.Client;

/// <summary>The result of one request: a forecast or an error, never both.</summary>
/// <param name="RequestId">Of the request.</param>
/// <param name="Forecast">The forecast, or null.</param>
/// <param name="Error">The error, or null.</param>
public sealed record PredictionResult(string RequestId, Forecast? Forecast, QuantraError? Error)
{
    /// <summary>The forecast, or the error as an exception.</summary>
    /// <returns>The forecast.</returns>
    /// <exception cref="QuantraException">The request was refused.</exception>
    public Forecast GetForecast() =>
        Forecast ?? throw (Error ?? throw new InvalidOperationException("a result must have a forecast or an error")).ToException();

    /// <summary>One line, the same in every culture.</summary>
    /// <returns>Such as "first: small@1 as of 2013-03-01, 2 symbols".</returns>
    public override string ToString() => (RequestId.Length > 0 ? $"{RequestId}: " : "") + (Forecast?.Title() ?? Error?.ToString());
}
