using System.Diagnostics.CodeAnalysis;

namespace Quantra.Client.Wire;

/// <summary>
/// Refuses requests in which null stands where the types allow none, as programs without nullable checks write them; the message
/// names the place.
/// </summary>
internal static class NullCheck
{
    private const string NoCovariates = "; leave it out, or write Covariates.None";

    /// <summary>Checks one request.</summary>
    /// <param name="request">To be sent.</param>
    /// <param name="place">Where it stands, such as "requests[3]"; what stands before the first dot or bracket is the parameter.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Request(PredictionRequest? request, string place)
    {
        Present(request, place);
        Present(request.Model, $"{place}.Model");
        Present(request.Model.Text, $"{place}.Model.Text");
        Present(request.RequestId, $"{place}.RequestId");
        Present(request.Covariates, $"{place}.Covariates", NoCovariates);
        Covariates(request.Covariates, $"{place}.Covariates");
        if (request.Bars is { } bars)
            Bars(bars, $"{place}.Bars");
        if (request.Window is { } window)
            Window(window, $"{place}.Window");
    }

    /// <summary>Checks what is to be explained.</summary>
    /// <param name="request">To be sent.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Explanations(ManyExplanationsRequest request)
    {
        const string Place = nameof(request);
        Request(request.Instance, $"{Place}.Instance");
        Elements(request.Targets, $"{Place}.Targets");
        Elements(request.Symbols, $"{Place}.Symbols");
    }

    /// <summary>Checks what is to be explained of many instances.</summary>
    /// <param name="request">To be sent.</param>
    /// <exception cref="ArgumentException">Null was found, or there are no instances, or such of several models.</exception>
    public static void GlobalExplanation(GlobalExplanationRequest request)
    {
        const string Place = nameof(request);
        Present(request.Instances, $"{Place}.Instances");
        Elements(request.Targets, $"{Place}.Targets");
        if (request.Instances.Count == 0)
            throw new ArgumentException($"{Place}.Instances is empty; name at least one", Place);
        for (var index = 0; index < request.Instances.Count; index++)
        {
            var place = FormattableString.Invariant($"{Place}.Instances[{index}]");
            Request(request.Instances[index], place);
            var (model, first) = (request.Instances[index].Model, request.Instances[0].Model);
            if (model != first)
                throw new ArgumentException($"{place} is of model {model}, the first of {first}; explain each model by itself", Place);
        }
    }

    /// <summary>Checks what a session is to begin with.</summary>
    /// <param name="request">To be sent.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Session(SessionRequest request)
    {
        const string Place = nameof(request);
        Present(request.Model, $"{Place}.Model");
        Present(request.Model.Text, $"{Place}.Model.Text");
        Present(request.SessionId, $"{Place}.SessionId");
        Present(request.Bars, $"{Place}.Bars");
        Bars(request.Bars, $"{Place}.Bars");
        Present(request.Covariates, $"{Place}.Covariates", NoCovariates);
        Covariates(request.Covariates, $"{Place}.Covariates");
    }

    /// <summary>Checks what is to be pushed to a session.</summary>
    /// <param name="bars">To be sent.</param>
    /// <param name="covariates">With them.</param>
    /// <exception cref="ArgumentException">Null was found.</exception>
    public static void Push(BarPanel bars, Covariates covariates)
    {
        Bars(bars, nameof(bars));
        Covariates(covariates, nameof(covariates));
    }

    private static void Covariates(Covariates covariates, string place)
    {
        Present(covariates.Observed, $"{place}.Observed");
        Present(covariates.Known, $"{place}.Known");
        Present(covariates.Numbers, $"{place}.Numbers");
        Present(covariates.Categories, $"{place}.Categories");
        foreach (var (name, texts) in covariates.Categories)
            Elements(texts, $"{place}.Categories[\"{name}\"]");
    }

    private static void Bars(BarPanel bars, string place)
    {
        Elements(bars.Symbols, $"{place}.Symbols");
        Present(bars.Calendar, $"{place}.Calendar");
        Present(bars.Currency, $"{place}.Currency");
    }

    private static void Window(FeatureWindow window, string place)
    {
        Elements(window.Symbols, $"{place}.Symbols");
        Elements(window.Features, $"{place}.Features");
        Present(window.SchemaHash, $"{place}.SchemaHash");
    }

    private static void Elements<T>(IReadOnlyList<T?>? list, string place)
        where T : class
    {
        Present(list, place);
        for (var index = 0; index < list.Count; index++)
        {
            if (list[index] is null)
                Present(list[index], FormattableString.Invariant($"{place}[{index}]"));
        }
    }

    private static void Present([NotNull] object? value, string place, string advice = "")
    {
        if (value is null)
            throw new ArgumentException($"{place} is null{advice}", place.Split('.', '[')[0]);
    }
}
